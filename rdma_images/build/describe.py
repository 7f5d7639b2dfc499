"""The description of an image and of what it needs to run, for `invoke describe`."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from json import dumps

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images import engine as engines
from rdma_images.build import build_record, container_run, preflight_folder
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import progress
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.engine import docker_command
from rdma_images.facts import Facts
from rdma_images.plan import image_settings
from rdma_images.plan.planner import plan_document


def describe_images(planned: Sequence[Image], facts: Facts) -> RenderableType:
    """Return images for people: components, settings with reasons, and `docker run`."""
    return Group(*(part for image in planned for part in _parts(image, facts)))


def as_json(planned: Iterable[Image]) -> str:
    """Return images for programs: each as `plan --json` has it, with the words of its `docker run`."""
    return dumps([plan_document(image) | {"docker_run": command(image)} for image in planned], indent=2)


def command(image: Image) -> list[str]:
    """Return the `docker run` of an image with all that it asks for, by the digest where its name is another's."""
    name = build_record.local_reference(image, ())
    if build := BUILD_FILE.read_if_valid(image.id):
        name = build.ref
        with suppress(RefusedError):  # an image that is gone is run under its name, once it is built again
            if engine := engines.running():
                name = docker_command.build_reference(build, engine, f"{COMMAND} build {image.options}", progress)
    return container_run.command(name, image.run_settings)


def _parts(image: Image, facts: Facts) -> Iterator[RenderableType]:
    yield Text(f"\n{image.id}", style="bold")
    table = Table(box=None, pad_edge=False, show_header=False)
    for component in image.components.values():
        table.add_row(component.name, component.version, f"by {component.decided_by}")
    table.add_row("preflight", preflight_folder.version(), "rdma-preflight: checks a job's nodes, runs its command")
    for requirement in image.requirements:
        table.add_row(requirement.name, f">= {requirement.at_least}", requirement.reason)
    yield table
    settings = Table("\nasks for", "", "\nwhy", "\nsource", box=None, pad_edge=False, header_style="bold")
    for setting in image.run_settings:
        settings.add_row(
            setting.name.removeprefix("variable."), setting.value, setting.why, Text(setting.source, style="dim")
        )
    yield settings
    if image.limitations:
        limits = Table("\ndoes not work", "\nwhy", "\nwhat to do", box=None, pad_edge=False, header_style="bold")
        for limit in image.limitations:
            limits.add_row(limit.feature, limit.why, limit.fix)
        yield limits
    yield from _own_parts(image)
    docker, run, *options = map(shlex.quote, command(image))
    # One option a line, so that no line is folded and all of it can be pasted.
    words = [f"{docker} {run} --rm -it", *options]
    yield Text.assemble("\n", ("run", "bold"), "  ", " \\\n       ".join(words))
    yield from _fallback(image, facts)


def _own_parts(image: Image) -> Iterator[RenderableType]:
    """Yield what the target adds to the components: packages, files, variables, and how a container starts."""
    table = Table("\nits own", "", box=None, pad_edge=False, header_style="bold")
    for kind, packages in (("python", image.python_packages), ("debian", image.debian_packages)):
        if packages:
            table.add_row(f"{kind} packages", ", ".join(packages))
    if added := image.additions:
        for file in added.files:
            table.add_row("file", f"{file.path} -> {file.destination}")
        for name, value in added.environment.items():
            table.add_row("variable", f"{name}={value}")
        table.add_row("user", f"{added.user.name} ({added.user.uid})" if added.user else "")
        table.add_row("working directory", added.workdir)
        for part, words in (("entry point", added.entrypoint), ("command", added.command)):
            table.add_row(part, shlex.join(words or ()))
    if table.row_count:
        yield table


def _fallback(image: Image, facts: Facts) -> Iterator[RenderableType]:
    """Yield what happens where the fabric is missing, and how to change that."""
    tcp_options = image_settings.tcp_docker_options(image, facts)
    if tcp_options is None:
        yield Text("Where the fabric is missing, NCCL falls back to TCP without an error.")
        return
    required = " and ".join(f"{name}={value}" for name, value in image.environment.items())
    yield Text(f"Where the fabric is missing, NCCL ends with an error: the image sets {required}.")
    yield Text.assemble("On a machine without it add ", (tcp_options, "bold"), ", or build with --set fallback=allow.")
