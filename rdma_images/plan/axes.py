"""The axes of the matrix: their known values, and what decides an axis that is not chosen."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import get_args

from rdma_images import components
from rdma_images.components.definition import Axis
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import Platform
from rdma_images.core.paths import COMMAND
from rdma_images.facts import Facts
from rdma_images.facts.unsupported import Unsupported

AXES: tuple[Axis, ...] = (
    *(axis for component in components.ALL if component.axis for axis in (component.axis, *component.properties)),
    Axis("variant", lambda _: ("runtime", "devel"), default="runtime"),
    Axis("fallback", lambda _: ("allow", "refuse"), default="refuse"),
    Axis("platform", lambda _: get_args(Platform), default="linux/amd64"),
)
BY_NAME = {axis.name: axis for axis in AXES}
# The axes of components that any target may have besides its own: by `with`, or by --set.
OPTIONAL = frozenset(component.name for component in components.ALL if component.is_optional)
NEWEST = "newest"  # the value of such an axis that stands for the newest version in facts/


@cache
def known_values(axis: Axis, facts: Facts) -> tuple[str, ...]:
    """Return the values of `axis`, oldest first, then the axis that may decide it."""
    return (*axis.values(facts), *([axis.decided_by] if axis.decided_by else []))


def is_optional(name: str, row: Collection[str]) -> bool:
    """Return whether any target may have the axis: a part's own, or a property of a part of `row`."""
    return name in OPTIONAL or (BY_NAME[name].property_of in OPTIONAL and BY_NAME[name].property_of in row)


def require_value(name: str, value: str, facts: Facts) -> None:
    """Raise RefusedError, with similar names, unless an axis has the value."""
    if name not in BY_NAME:
        raise RefusedError(f"{name}: no such axis\n{suggestion(name, BY_NAME)}")
    axis = BY_NAME[name]
    known = known_values(axis, facts)
    if value not in known and not (value == NEWEST and name in OPTIONAL):
        if reason := facts.table(Unsupported).reason(name, value):
            raise RefusedError(f"{name} {value}: {reason}")
        alias = axis.aliases(facts).get(value.lower())
        fix = f"write {alias}" if alias else suggestion(value, known)
        fix += f"\n`{COMMAND} facts.update` looks for newer ones" if value[:1].isdecimal() and not alias else ""
        raise RefusedError(f"{name} {value}: no such value\n{fix}")


def complete_row(row: Mapping[str, str]) -> dict[str, str]:
    """Return `row` with every axis that follows from it, in the order of the axes.

    An axis that is not chosen is decided by another one of the row ("nccl": "pytorch"), or has its default.
    """
    axes: dict[str, str] = {}
    for axis in AXES:
        if axis.name in row:
            axes[axis.name] = row[axis.name]
        elif axis.decided_by in axes:
            axes[axis.name] = str(axis.decided_by)
        elif axis.default is not None and (axis.property_of is None or axis.property_of in axes):
            axes[axis.name] = axis.default
    return axes
