"""Find the torch, else also the base, with which all packages of a target have wheels.

The default row comes first, then the newest torch on its base, then on other bases. What a choice was forced by is what
the package index answered to the row that it replaces.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version
from rich.table import Table

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import PackageIndex
from rdma_images.core.progress import Progress, silent
from rdma_images.facts import Facts
from rdma_images.inputs import resolve, sources
from rdma_images.inputs.conflicts import Conflict, PackageConflictError
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import LockRequest
from rdma_images.plan import axes, local_packages, requirements_file, rules
from rdma_images.plan.candidate import Candidate, candidate
from rdma_images.plan.matrix import Matrix, Target

TORCH = "pytorch"
MAX_QUOTE_LENGTH = 300  # characters of uv's own words


@dataclass(frozen=True)
class Solution:
    """A row of a target that works: the axes to change, and what each choice was forced by."""

    target: str
    changes: dict[str, str]
    reasons: dict[str, tuple[str, str]]  # version and reason, by component


@dataclass(frozen=True)
class _Problem:
    """A target and what the package index is asked about it."""

    name: str
    target: Target
    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    indexes: tuple[PackageIndex, ...]


def solve(matrix: Matrix, name: str, facts: Facts, mirrors: Mirrors, progress: Progress = silent) -> Solution:
    """Return the row of a target with which the package index has wheels that go together.

    Raises:
        RefusedError: There is none; with what keeps the default row from it.
        RdmaImagesError: The package index does not answer.
    """
    target = matrix.target(name)
    default = candidate(name, target, facts)
    if TORCH not in default:
        raise RefusedError(f"{name} has no torch\nplan it without --solve")
    problem = _problem(matrix, name)
    forced: dict[str, Conflict] = {}  # by axis, the index's first answer to a request for another value
    for base, torches in _rows(default, target, facts):
        progress(f"asking for wheels with {f'torch {torches[0]}' if len(torches) == 1 else 'any torch'} on {base}")
        planned = candidate(name, target, facts, {"base": base})
        try:
            torch = _newest_solvable(problem, planned, torches, facts, mirrors)
        except PackageConflictError as error:
            axis = TORCH if torches == (default[TORCH],) else "base"
            forced.setdefault(axis, error.conflict)
            continue
        new_values = {"base": base, TORCH: torch}
        changes = {axis: value for axis, value in new_values.items() if value != default.axes[axis]}
        return Solution(name, changes, _reasons(candidate(name, target, facts, changes), default, forced))
    conflict = next(iter(forced.values()), None)
    reason = _explain(conflict, default[TORCH]) if conflict else "no torch passes the rules, see plan"
    raise RefusedError(f"{name}: no torch and no base has wheels of all its packages: {reason}\nchange its packages")


def table(solutions: Iterable[Solution]) -> Table:
    """Return what was chosen and why, for a terminal."""
    grid = Table("target", "component", "version", "because", box=None, header_style="bold", pad_edge=False)
    for solution in solutions:
        for name, (version, reason) in solution.reasons.items():
            grid.add_row(solution.target, name, version, reason)
    return grid


def _problem(matrix: Matrix, name: str) -> _Problem:
    target = matrix.target(name)
    listed = requirements_file.read_requirements(target.requirements, target.constraints, {})
    local = (
        local_packages.pin(text, paths.PROJECT, matrix.where("targets", name, "python-packages", number))
        for number, text in enumerate(target.python_packages)
    )
    packages = (*local, *listed.packages)
    return _Problem(name, target, packages, tuple(listed.constraints), matrix.package_indexes)


def _rows(default: Candidate, target: Target, facts: Facts) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield bases with the torches to try on each, nearest to the default row first.

    Of bases with the same Python one is enough. A base with a CUDA toolkit is nobody's choice but the user's.
    """
    default_base, torch = default.axes["base"], default[TORCH]
    pythons = set()
    for base in dict.fromkeys(
        [default_base, *target.values.get("base", ()), *axes.values(axes.BY_NAME["base"], facts)]
    ):
        planned = candidate(default.target, target, facts, {"base": base})
        if planned["python"] in pythons or (base != default_base and facts.bases.bases[base].cuda):
            continue
        able = tuple(
            version
            for version in facts.torch.releases
            if rules.is_allowed(candidate(default.target, target, facts, {"base": base, TORCH: version}), facts)
        )
        pythons.add(planned["python"])
        if base == default_base and torch in able:
            yield base, (torch,)
            able = tuple(version for version in able if version != torch)
        if able:
            yield base, able


def _newest_solvable(
    problem: _Problem, planned: Candidate, torches: Sequence[str], facts: Facts, mirrors: Mirrors
) -> str:
    """Return the newest torch with wheels of all. Raises PackageConflictError for none."""
    oldest, *_, newest = sorted([*torches, *torches], key=Version)
    unavailable = [version for version in facts.torch.releases if version not in torches]
    excluded = "".join(
        f",!={version}" for version in unavailable if Version(oldest) < Version(version) < Version(newest)
    )
    explicit = planned.axes.get("nccl") if planned.axes.get("nccl") != TORCH else None
    request = LockRequest(
        requirements=(f"torch>={oldest},<={newest}{excluded}", *sorted(set(problem.requirements))),
        overrides=tuple(f"nvidia-nccl-cu{major}=={explicit}" for major in (12, 13)) if explicit else (),
        constraints=tuple(sorted(set(problem.constraints))),
        sources=problem.target.source_packages,
        python=planned["python"],
        platform="linux/arm64" if planned["platform"] == "linux/arm64" else "linux/amd64",
    )
    versions = resolve.versions(request, *sources.index_for(mirrors), problem.indexes)
    return Version(versions["torch"]).public


def _explain(conflict: Conflict, planned: str, torch: str = "") -> str:
    """Return which torch packages need, the chosen one if possible; else uv's own words."""
    other_needs = [need for need in conflict.needs if need.torch != planned]
    needs_of_torch = [need for need in other_needs if need.torch == torch]
    return (
        (needs_of_torch or other_needs)[-1].sentence(planned)
        if other_needs
        else textwrap.shorten(conflict.words, MAX_QUOTE_LENGTH)
    )


def _reasons(planned: Candidate, default: Candidate, forced: Mapping[str, Conflict]) -> dict[str, tuple[str, str]]:
    """Return the version of each component that wheels depend on, with what decided it."""
    reasons = {}
    for name in ("base", "python", TORCH, "cuda", "nccl"):
        component = planned.components[name]
        if planned.axes.get(name) == default.axes.get(name):
            reason = f"from {component.decided_by}" if component.decided_by in planned else "as in matrix.yaml"
        elif conflict := forced.get(name) or forced.get(TORCH):
            reason = _explain(conflict, default[TORCH], planned[TORCH])
        else:
            reason = "the row of matrix.yaml is refused, see plan"
        reasons[name] = (component.version, reason)
    return reasons
