"""A combination that may or may not work: a target with every axis chosen and every component resolved."""

from collections.abc import Mapping
from dataclasses import dataclass

from rdma_images import axes
from rdma_images.facts import Facts
from rdma_images.matrix import Target
from rdma_images.model import Component, Fabric


@dataclass(frozen=True)
class Candidate:
    """What the rules judge. `versions` has the version of every component, and beside them properties and fabric."""

    target: str
    fabric: Fabric
    axes: dict[str, str]  # as chosen, complete: {"nccl": "pytorch", ...}
    foreign: tuple[str, ...]  # axes that were asked for, or follow, and that the target does not have
    undecided: tuple[str, ...]  # axes left to another one ("nccl": "pytorch") that is not there
    components: dict[str, Component]
    versions: dict[str, str]

    def __contains__(self, component: str) -> bool:
        return component in self.versions

    def __getitem__(self, component: str) -> str:
        return self.versions[component]


def candidate(name: str, target: Target, facts: Facts, changes: Mapping[str, str] | None = None) -> Candidate:
    """The default row of `target` with `changes`; every value must be known (axes.check)."""
    changes = dict(changes or {})
    own, chosen = axes.complete(target.default), axes.complete(target.default | changes)
    components = _chosen(chosen, changes, facts) | _brought(chosen, target, facts)
    versions = {component.name: component.version for component in components.values()}
    properties = {axis.name: chosen[axis.name] for axis in axes.AXES if axis.default}
    return Candidate(
        target=name,
        fabric=target.fabric,
        axes=chosen,
        foreign=tuple(axis for axis in chosen if axis not in own),
        undecided=tuple(axis for axis in chosen if _undecided(axes.BY_NAME[axis], chosen)),
        components=components,
        versions=versions | properties | {"fabric": target.fabric},
    )


def _chosen(chosen: Mapping[str, str], changes: Mapping[str, str], facts: Facts) -> dict[str, Component]:
    """The components that are axes: as written, or as what decides them implies."""
    versions: dict[str, str] = {}
    components: dict[str, Component] = {}
    for axis in axes.AXES:
        if axis.name not in chosen or axis.default or _undecided(axis, chosen):
            continue
        value, decided_by = chosen[axis.name], "--set" if axis.name in changes else "matrix"
        if value == axis.decided_by and axis.implied:
            implied = axis.implied(facts, versions)
            if implied is None:
                continue
            value, decided_by = implied, axis.decided_by
        versions[axis.name] = value
        components[axis.name] = Component(axis.name, value, decided_by)
    return components


def _undecided(axis: axes.Axis, chosen: Mapping[str, str]) -> bool:
    """Whether an axis is left to another one that is not there."""
    return axis.decided_by is not None and chosen[axis.name] == axis.decided_by and axis.decided_by not in chosen


def _brought(chosen: Mapping[str, str], target: Target, facts: Facts) -> dict[str, Component]:
    """The components that are no axis: what another one brings, where the facts know it."""
    brought: dict[str, Component] = {}
    if installer := chosen.get("efa-installer"):
        release = facts.efa.releases[installer]
        for name, version in (("libfabric", release.libfabric), ("rdma-core", release.rdma_core)):
            if version:
                brought[name] = Component(name, version, "efa-installer")
    if target.fabric == "erdma":
        brought["erdma-apt"] = Component("erdma-apt", facts.bases.bases[chosen["base"]].codename, "base")
    if torch := chosen.get("pytorch"):
        brought["cudnn"] = Component("cudnn", facts.torch.releases[torch].cudnn, "pytorch")
    return brought
