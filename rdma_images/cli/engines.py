"""engine.*: the container engine."""

from shlex import quote
from typing import Annotated

from invoke.context import Context

from rdma_images.cli.output import show
from rdma_images.cli.task import task
from rdma_images.core.progress import progress
from rdma_images.inputs import project, target_options


@task("engine.up", "engine.up --docker", name="engine.up")
def up(
    _: Context,
    docker: Annotated[bool, "Print lines for `eval`: `docker` of this shell is then the private engine's."] = False,
) -> None:
    """Find a Docker engine, or start the private one.

    The private one has no bridge: its containers need --network=host to reach anything.
    """
    from rdma_images import engine
    from rdma_images.engine import status

    running = engine.ensure(progress)
    if docker:
        show("\n".join(f"export {name}={quote(value)}" for name, value in running.env.items()))
        return
    show(status.table(status.engine_status()))


@task("engine.status", name="engine.status")
def status(_: Context) -> None:
    """Show the engine, its versions and its disk."""
    from rdma_images.engine import status

    show(status.table(status.engine_status()))


@task("engine.down --purge", name="engine.down")
def down(_: Context, purge: Annotated[bool, "Also remove its data: images, caches, its own packages."] = False) -> None:
    """Stop the private engine and what it started."""
    from rdma_images.engine import private

    show("stopped" if private.down(purge, progress) else "no private engine was running")


@task("engine.prune --cache", name="engine.prune")
def prune(
    _: Context,
    all_targets: Annotated[bool, "Also remove images of targets that this folder's matrix does not have."] = False,
    cache: Annotated[bool, "Also empty the builder's cache."] = False,
) -> None:
    """Remove images that the default matrix no longer has.

    Also removes images whose name a newer image has taken. Images of targets that only other folders have stay.
    """
    from rdma_images import engine
    from rdma_images.engine import prune

    loaded_project = project.load()
    images = target_options.chosen_plan(loaded_project, None, True, None).images
    if not engine.exists():
        show("nothing to remove: there is no engine yet")
        return
    targets = None if all_targets else loaded_project.matrix.targets
    show(*prune.prune_images(engine.ensure(progress), [image.id for image in images], targets, cache, progress))
