"""A combination that may work: a target with every axis chosen and every version known."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rdma_images import components
from rdma_images.core.image import Component, Fabric
from rdma_images.facts import Facts
from rdma_images.plan import axes
from rdma_images.plan.matrix import Target, package_names

DECIDERS = {axis.name: axis.decided_by for axis in axes.AXES if axis.decided_by}
# The components whose version another component's package decides, and how.
BUNDLED = {component.name: component.bundled for component in components.ALL if component.bundled}
PROPERTIES = tuple(axis.name for axis in axes.AXES if axis.default)


@dataclass(frozen=True)
class Candidate:
    """A combination for rules to judge; `versions` has components, properties and fabric."""

    target: str
    fabric: Fabric
    axes: dict[str, str]  # as chosen, complete: {"nccl": "pytorch", ...}
    requested: Mapping[str, str]  # those that the request adds to the target's row
    foreign: tuple[str, ...]  # requested or implied axes that the target does not have
    undecided: tuple[str, ...]  # axes left to another one ("nccl": "pytorch") that is missing
    versions: dict[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)  # the variables that the target sets
    packages: frozenset[str] = frozenset()  # Python packages that the target names, and repositories of these

    def __contains__(self, component: str) -> bool:
        return component in self.versions

    def __getitem__(self, component: str) -> str:
        return self.versions[component]

    @cached_property
    def components(self) -> dict[str, Component]:
        """Return the components by name, each with what decided its version."""
        versions = {name: version for name, version in self.versions.items() if name not in (*PROPERTIES, "fabric")}
        return {name: Component(name, version, self._decided_by(name)) for name, version in versions.items()}

    def _decided_by(self, name: str) -> str:
        if name in BUNDLED:
            return BUNDLED[name].brought_by
        if self.axes[name] == DECIDERS.get(name):
            return DECIDERS[name]
        return "--set" if name in self.requested else "matrix"


def candidate(name: str, target: Target, facts: Facts, changes: Mapping[str, str] | None = None) -> Candidate:
    """Return the default row of `target` with `changes`, whose values are all known."""
    changes = dict(changes or {})
    default_axes, row = target.complete(), target.complete(changes)
    undecided = tuple(axis for axis, decider in DECIDERS.items() if row.get(axis) == decider and decider not in row)
    return Candidate(
        target=name,
        fabric=target.fabric,
        axes=row,
        requested=changes,
        foreign=tuple(axis for axis in row if axis not in default_axes and not axes.is_optional(axis, row)),
        undecided=undecided,
        versions=_chosen_versions(row, undecided, facts)
        | dict(_bundled_versions(row, target.fabric, facts))
        | {axis: row[axis] for axis in PROPERTIES if axis in row}
        | {"fabric": target.fabric},
        environment=target.env,
        packages=package_names(target),
    )


def _chosen_versions(axis_values: Mapping[str, str], undecided: tuple[str, ...], facts: Facts) -> dict[str, str]:
    """Return the versions on the axes: as written, or as the deciding axis implies."""
    versions: dict[str, str] = {}
    for axis in axes.AXES:
        if axis.name not in axis_values or axis.default or axis.name in undecided:
            continue
        value: str | None = axis_values[axis.name]
        if value == axis.decided_by and axis.version_from:
            value = axis.version_from(facts, versions)
        if value == axes.NEWEST:
            value = axes.known_values(axis, facts)[-1]
        if value is not None:
            versions[axis.name] = value
    return versions


def _bundled_versions(row: Mapping[str, str], fabric: Fabric, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the known versions of components that others bring."""
    for name, bundled in BUNDLED.items():
        if bundled.brought_by in row and (version := bundled.version(row, fabric, facts)):
            yield name, version
