"""The axes of the matrix: what can be chosen, from which values, and what follows where nothing is chosen."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_args

from rdma_images import versions
from rdma_images.errors import RefusedError, near
from rdma_images.facts import Facts
from rdma_images.model import Platform


@dataclass(frozen=True)
class Axis:
    """One axis. `known` lists its values from the facts, the oldest first.

    Where no value is chosen, `decided_by` names the axis whose value implies this one's; `implied` looks it up
    (None: the facts do not know it, or there is none). `default` is for an axis that nothing implies: a property of the
    image, which has no version and is no component.
    """

    name: str
    known: Callable[[Facts], Iterable[str]]
    decided_by: str | None = None
    implied: Callable[[Facts, Mapping[str, str]], str | None] | None = None
    default: str | None = None


def _ordered(values: Iterable[str]) -> list[str]:
    return sorted(set(values), key=versions.key)


def _bases(facts: Facts) -> list[str]:
    """Near bases stand side by side: the releases of a distribution, the plain one before the one with CUDA."""
    known = facts.bases.bases
    return sorted(known, key=lambda b: (known[b].distribution, versions.key(known[b].release), known[b].cuda or "", b))


AXES: tuple[Axis, ...] = (
    Axis("base", _bases),
    Axis(
        "python",
        lambda facts: _ordered(base.python for base in facts.bases.bases.values()),
        decided_by="base",
        implied=lambda facts, chosen: facts.bases.bases[chosen["base"]].python,
    ),
    Axis("pytorch", lambda facts: _ordered(facts.torch.releases)),
    Axis(
        "cuda",
        lambda facts: _ordered(release.cuda for release in facts.torch.releases.values()),
        decided_by="pytorch",
        implied=lambda facts, chosen: facts.torch.releases[chosen["pytorch"]].cuda,
    ),
    Axis(
        "nccl",
        lambda facts: _ordered(facts.nccl.releases),
        decided_by="pytorch",
        implied=lambda facts, chosen: facts.torch.releases[chosen["pytorch"]].nccl,
    ),
    Axis("efa-installer", lambda facts: _ordered(facts.efa.releases)),
    Axis(
        "aws-ofi-nccl",
        lambda facts: _ordered(facts.plugin.releases),
        decided_by="efa-installer",
        implied=lambda facts, chosen: facts.efa.releases[chosen["efa-installer"]].plugin,
    ),
    Axis("nccl-tests", lambda facts: _ordered(facts.nccl_tests.releases)),
    Axis("variant", lambda _: ("runtime", "devel"), default="runtime"),
    Axis("fallback", lambda _: ("allow", "refuse"), default="refuse"),
    Axis("platform", lambda _: get_args(Platform), default="linux/amd64"),
)
BY_NAME = {axis.name: axis for axis in AXES}


def named(name: str) -> Axis:
    """The axis of that name; RefusedError with the near ones where there is none."""
    if name not in BY_NAME:
        raise RefusedError(f"no axis {name!r}: {near(name, BY_NAME)}")
    return BY_NAME[name]


@cache
def values(axis: Axis, facts: Facts) -> tuple[str, ...]:
    """Every value of `axis`, the oldest first, with the name of what decides it at the end."""
    return (*axis.known(facts), *([axis.decided_by] if axis.decided_by else []))


def check(name: str, value: str, facts: Facts) -> None:
    """Raise RefusedError, with the near ones, for an axis or a value that is not known."""
    known = values(named(name), facts)
    if value not in known:
        raise RefusedError(f"{name} {value!r} is not known: {near(value, known)}")


def complete(row: Mapping[str, str]) -> dict[str, str]:
    """`row` with every axis that follows from it, in the order of the axes.

    An axis that is not chosen is decided by another one that is there ("nccl": "pytorch"), or has its default.
    """
    chosen: dict[str, str] = {}
    for axis in AXES:
        if axis.name in row:
            chosen[axis.name] = row[axis.name]
        elif axis.decided_by in chosen:
            chosen[axis.name] = str(axis.decided_by)
        elif axis.default is not None:
            chosen[axis.name] = axis.default
    return chosen
