"""Find the torch, else also the base, with which all packages of a target have wheels.

The default row comes first, then the newest torch on its base, then on other bases.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from packaging.version import Version

from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import Progress, silent
from rdma_images.facts import Facts
from rdma_images.inputs import resolve, sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import LockRequest
from rdma_images.plan import axes, requirements_file, rules
from rdma_images.plan.candidate import Candidate, candidate
from rdma_images.plan.matrix import Matrix, Target

TORCH = "pytorch"
MAX_QUOTE_LENGTH = 300  # characters of uv's own words


@dataclass(frozen=True)
class Solution:
    """A row of a target that works: the axes to change, and why its default row does not ("" where it does)."""

    target: str
    changes: dict[str, str]
    reason: str


def solve_target(matrix: Matrix, name: str, facts: Facts, mirrors: Mirrors, progress: Progress = silent) -> Solution:
    """Return the row of a target for which the package index has wheels that go together.

    Raises:
        RefusedError: No row has; the error quotes uv on the first row that was tried.
        RdmaImagesError: The package index does not answer.
    """
    target = matrix.target(name)
    default = candidate(name, target, facts)
    if TORCH not in default:
        raise RefusedError(f"{name} has no torch\nplan it without --solve")
    packages = _packages(target, partial(matrix.where, "targets", name))
    reason = ""
    for base, torches in _rows(default, target, facts):
        progress(f"asking for wheels with {f'torch {torches[0]}' if len(torches) == 1 else 'any torch'} on {base}")
        planned = candidate(name, target, facts, {"base": base})
        try:
            torch = _newest_solvable(packages, planned, torches, facts, mirrors)
        except resolve.NoSolutionError as error:
            reason = reason or textwrap.shorten(error.words, MAX_QUOTE_LENGTH)
            continue
        row = {"base": base, TORCH: torch}
        changes = {axis: value for axis, value in row.items() if value != default.axes[axis]}
        return Solution(name, changes, (reason or "the row of matrix.yaml is refused, see plan") if changes else "")
    reason = reason or "no torch passes the rules, see plan"
    raise RefusedError(f"{name}: no torch and no base has wheels of all its packages: {reason}\nchange its packages")


def _packages(target: Target, where: Callable[..., str]) -> LockRequest:
    """Return the requirements of a target beside torch; python and platform are set for each base."""
    asked = requirements_file.read_requirements(target, {}, where)
    return LockRequest(
        requirements=tuple(sorted({*asked.packages})),
        constraints=tuple(sorted({*asked.constraints})),
        sources=target.source_packages,
        no_deps=tuple(sorted(target.no_deps)),
        python="",
        platform="linux/amd64",
    )


def _rows(default: Candidate, target: Target, facts: Facts) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield bases with the torches to try on each, nearest to the default row first.

    One base for each Python is enough. A base with a CUDA toolkit is only taken if the user names it.
    """
    default_base, torch = default.axes["base"], default[TORCH]
    pythons = set()
    for base in dict.fromkeys(
        [default_base, *target.values.get("base", ()), *axes.known_values(axes.BY_NAME["base"], facts)]
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
    packages: LockRequest, planned: Candidate, torches: Sequence[str], facts: Facts, mirrors: Mirrors
) -> str:
    """Return the newest torch with wheels of all. Raises NoSolutionError for none."""
    oldest, newest = min(torches, key=Version), max(torches, key=Version)
    between = (v for v in facts.torch.releases if Version(oldest) < Version(v) < Version(newest) and v not in torches)
    torch = ",".join((f"torch>={oldest}", f"<={newest}", *(f"!={version}" for version in between)))
    explicit = planned.axes.get("nccl") if planned.axes.get("nccl") != TORCH else None
    changes = {
        "requirements": (torch, *packages.requirements),
        "overrides": tuple(f"nvidia-nccl-cu{major}=={explicit}" for major in (12, 13)) if explicit else (),
        "python": planned["python"],
        "platform": planned["platform"],
    }
    versions = resolve.resolve_versions(packages.model_copy(update=changes), *sources.index_for(mirrors))
    return Version(versions["torch"]).public
