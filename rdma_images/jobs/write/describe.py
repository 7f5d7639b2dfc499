"""The description of an image and of what it needs to run, for `invoke describe`."""

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.build import build_images
from rdma_images.core.image import Image
from rdma_images.core.step_files import BUILD
from rdma_images.engine import container_run
from rdma_images.facts import Facts
from rdma_images.plan import runtime

VARIABLE = "variable."


def describe_images(images: Sequence[Image], facts: Facts) -> RenderableType:
    """Return images for people: components, settings with reasons, and `docker run`."""
    return Group(*(part for image in images for part in _parts(image, facts)))


def as_json(images: Sequence[Image], facts: Facts) -> str:
    """Return the images for programs: a list of {"image", "components", "settings", …}."""
    return json.dumps([_plain(image, facts) for image in images], indent=2)


def command(image: Image) -> str:
    """Return the `docker run` of an image with all that it asks for."""
    build = BUILD.read_if_valid(image.id)
    return shlex.join(container_run.command(build.ref if build else build_images.ref(image, ()), image.settings))


def _plain(image: Image, facts: Facts) -> dict[str, Any]:
    """Return what an image asks for, for `--json`."""
    return {
        "image": image.id,
        "components": {component.name: component.version for component in image.components.values()},
        "requires": {requirement.name: requirement.at_least for requirement in image.requirements},
        "environment": image.environment,
        "settings": [vars(setting) for setting in image.settings],
        "limits": [vars(limit) for limit in image.limits],
        "run": command(image),
        "run-without-fabric": runtime.run_without_fabric(image, facts),
    }


def _parts(image: Image, facts: Facts) -> Iterator[RenderableType]:
    yield Text(f"\n{image.id}", style="bold")
    table = Table(box=None, pad_edge=False, show_header=False)
    for component in image.components.values():
        table.add_row(component.name, component.version, f"by {component.decided_by}")
    for requirement in image.requirements:
        table.add_row(requirement.name, f">= {requirement.at_least}", requirement.reason)
    yield table
    settings = Table("\nasks for", "", "\nwhy", "\nsource", box=None, pad_edge=False, header_style="bold")
    for setting in image.settings:
        settings.add_row(
            setting.name.removeprefix(VARIABLE), setting.value, setting.why, Text(setting.source, style="dim")
        )
    yield settings
    if image.limits:
        limits = Table("\ndoes not work", "\nwhy", "\nwhat to do", box=None, pad_edge=False, header_style="bold")
        for limit in image.limits:
            limits.add_row(limit.feature, limit.why, limit.fix)
        yield limits
    yield Text.assemble("\n", ("run", "bold"), f"  {command(image)}")
    yield from _fallback(image, facts)


def _fallback(image: Image, facts: Facts) -> Iterator[RenderableType]:
    """Yield what happens where the fabric is missing, and how to change that."""
    lift = runtime.run_without_fabric(image, facts)
    if lift is None:
        yield Text("Where the fabric is missing, NCCL falls back to TCP without an error.")
        return
    insisted = " and ".join(f"{name}={value}" for name, value in image.environment.items())
    yield Text(f"Where the fabric is missing, NCCL ends with an error: the image sets {insisted}.")
    yield Text.assemble("On a machine without it add ", (lift, "bold"), ", or build with --set fallback=allow.")
