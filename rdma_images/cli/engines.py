"""engine.*: the container engine."""

from dataclasses import asdict
from json import dumps
from shlex import quote
from typing import Annotated

from rdma_images.cli.output import show
from rdma_images.cli.task import Json, load_project, task
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import progress
from rdma_images.inputs import target_options


@task("engine.up", "engine.up --docker", name="engine.up")
def up(
    docker: Annotated[bool, f'For eval "$({COMMAND} engine.up --docker)", so that `docker` talks to it.'] = False,
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
def status(json: Json = False) -> None:
    """Show the engine, its versions and its disk."""
    from rdma_images.engine import status

    engine_status = status.engine_status()
    show(dumps(asdict(engine_status), indent=2, default=str) if json else status.table(engine_status))


@task("engine.down --purge", name="engine.down")
def down(purge: Annotated[bool, "Also remove its data: images, caches, its own packages."] = False) -> None:
    """Stop the private engine and what it started."""
    from rdma_images.engine import private

    show("stopped" if private.down(purge, progress) else "no private engine was running")


@task("engine.prune --cache", name="engine.prune")
def prune(
    all_targets: Annotated[bool, "Also remove images of targets that this folder's matrix does not have."] = False,
    cache: Annotated[bool, "Also empty the builder's cache."] = False,
) -> None:
    """Remove images that the default matrix does not have.

    Those built with --set or --onto go, too, and those whose name a newer image has taken. Images of targets that
    only other folders have stay.
    """
    from rdma_images import engine
    from rdma_images.engine import prune

    loaded_project = load_project(measures=False)
    plan = target_options.chosen_plan(loaded_project, None, True, None)
    if not engine.exists():
        show("nothing to remove: there is no engine yet")
        return
    targets = None if all_targets else loaded_project.matrix.targets.keys() - plan.unmeasured
    show(*prune.prune_images(engine.ensure(progress), [image.id for image in plan.images], targets, cache, progress))
