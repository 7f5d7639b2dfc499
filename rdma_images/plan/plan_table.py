"""A plan to look at: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rdma_images import components
from rdma_images.components.base import BaseDetails
from rdma_images.core.image import Image, Onto
from rdma_images.plan.axes import AXES
from rdma_images.plan.planner import plan_document
from rdma_images.plan.refusals import Plan, Refusal

if TYPE_CHECKING:  # importing rich takes 0.1 s, which a plan for a program does not need
    from rich.console import RenderableType

ADDED = "with"  # the column of the parts that a target may add
# Columns that a table shows only where an image's value differs from this usual one.
PROPERTIES = {"gpu": "fabric", "variant": "runtime", "fallback": "refuse"}


def as_json(plan: Plan, overrides: Sequence[str] = (), problems: Sequence[str] = ()) -> str:
    """Return the plan as JSON: images, refusals, overrides and problems.

    Args:
        overrides: The user's own files that replace the tool's.
        problems: What keeps the images from being built.
    """
    images = [plan_document(image) for image in plan.images]
    refusals = [asdict(refusal) for refusal in plan.refusals]
    messages = {"overrides": list(overrides), "problems": list(problems)}
    return json.dumps({"images": images, "refusals": refusals} | messages, indent=2)


def table(plan: Plan) -> RenderableType:
    """Return the plan for people: a table of images, then what is refused and why."""
    from rich.console import Group

    parts: list[RenderableType] = [_images(plan)] if plan.images else []
    parts += [_notes(image) for image in plan.images if image.unknown or image.core_hours]
    parts += [_changes(image, image.onto) for image in plan.images if image.onto]
    parts += [_refusal(refusal) for refusal in plan.refusals]
    return Group(*parts)


def _images(plan: Plan) -> RenderableType:
    """Return one row an image, one column a component that any of them has; what a target may add has one column."""
    from rich.table import Table

    present = [
        component
        for component in components.IN_TABLES
        if any(component.name in image.components for image in plan.images)
    ]
    added = [component.name for component in present if component.is_optional and component.role == "part"]
    columns = [component.name for component in present if component.name not in added]
    if added:
        columns.append(ADDED)
    for name, default in PROPERTIES.items():
        if any(image.axes.get(name, default) != default for image in plan.images):
            columns.append(name)
    grid = Table("target", *columns, "platform", "driver", box=None, header_style="bold", pad_edge=False)
    for image in plan.images:
        parts = ", ".join(f"{name} {image.version(name)}" for name in added if name in image.components)
        cells = (parts if name == ADDED else _cell(image, name) for name in columns)
        drivers = (f">= {needed.at_least}" for needed in image.requirements if needed.name == "nvidia-driver")
        grid.add_row(image.target, *cells, image.platform.removeprefix("linux/"), next(drivers, ""))
    return grid


def _cell(image: Image, name: str) -> str:
    """Return a component's version, with its stand-in where it has one, or a property."""
    if not (component := image.components.get(name)):
        return image.axes.get(name, "")
    details = component.details
    stand_in = details.stand_in if isinstance(details, BaseDetails) else None
    return f"{component.version} (stand-in {stand_in})" if stand_in else component.version


def _notes(image: Image) -> RenderableType:
    """Return what is compiled for hours, and what no fact says of an image's combination."""
    from rich.text import Text

    text = Text(f"\n{image.id}\n", overflow="fold")
    advice = "; --set gpu=sm_90 compiles for one GPU" if len(image.source_architectures) > 1 else ""
    for name, hours in image.core_hours.items():
        text.append("  compiles: ", "yellow").append(f"{name} in some {hours} hours of one core, once{advice}\n")
    for gap in image.unknown:
        text.append("  not known: ", "yellow").append(f"{gap}\n")
    text.rstrip()
    return text


def _changes(image: Image, onto: Onto) -> RenderableType:
    """Return what happens to an image that a fabric is added to."""
    from rich.text import Text

    text = Text(f"\n{image.target} onto {onto.base.ref}\n", overflow="fold")
    styles = {"added": "green", "replaced": "yellow", "kept": ""}
    for change in onto.changes:
        text.append(f"  {change.kind:9}", styles[change.kind]).append(f"{change.part}: {change.why}\n")
    text.rstrip()
    return text


def _refusal(refusal: Refusal) -> RenderableType:
    """Return why one combination is refused, and the nearest that works."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    usual = {axis.name: (axis.decided_by, axis.default) for axis in AXES}
    choice = ", ".join(f"{axis} {value}" for axis, value in refusal.axes.items() if value not in usual[axis])
    parts: list[RenderableType] = [Text.assemble("\n", ("refused", "bold red"), f"  {refusal.target}: {choice}")]
    for broken in refusal.broken:
        related = ", ".join(f"{name} {version}" for name, version in broken.versions.items())
        suffix = f" ({related})" if related else ""
        parts.append(Text.assemble((f"  {broken.rule}", "bold"), suffix))
        # Padding: a folded line on a terminal is indented, too.
        parts.append(Padding.indent(Text(broken.reason).append(f"\nsource: {broken.source}", "dim"), 4))
    if refusal.dropped_axes:
        parts.append(Text.assemble("  leave out: ", (_typed(refusal.dropped_axes), "green")))
    elif refusal.nearest:
        parts.append(Text.assemble("  nearest that works: ", (_typed(refusal.nearest), "green")))
    elif any(broken.versions or broken.missing_component for broken in refusal.broken):
        parts.append(Text("  no change of two axes makes it work"))
    return Group(*parts)


def _typed(changes: dict[str, str]) -> str:
    """Return changes of axes as a user types them."""
    return " ".join(f"--set {axis}={value}" for axis, value in changes.items())
