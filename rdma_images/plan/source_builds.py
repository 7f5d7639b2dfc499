"""How the Python packages of a target that have no wheel are compiled."""

from collections.abc import Iterable

from rdma_images.components import cuda, gpus, nccl_tests
from rdma_images.core.pipeline import SourceBuild
from rdma_images.facts import Facts
from rdma_images.facts.source_packages import SourcePackages
from rdma_images.plan.candidate import Candidate


def architectures(candidate: Candidate, packages: Iterable[str], facts: Facts) -> tuple[str, ...]:
    """Return what CUDA code is compiled for, as ("sm_80", "sm_90"); empty where no compiler of this CUDA can be had."""
    if not packages or not cuda.toolkit_requirements(candidate[cuda.NAME], facts):
        return ()
    choice = candidate[nccl_tests.GPU]
    return gpus.architectures(choice, candidate.fabric, candidate[cuda.NAME], facts)


def source_builds(candidate: Candidate, packages: Iterable[str], facts: Facts) -> dict[str, SourceBuild]:
    """Return how those packages are built that want more than every build gets, by name."""
    if not (compiled_for := architectures(candidate, packages, facts)):
        return {}
    numbers = ";".join(architecture.removeprefix("sm_") for architecture in compiled_for)
    table = facts.table(SourcePackages).packages
    return {
        name: SourceBuild(
            {key: value.replace("{architectures}", numbers) for key, value in row.variables.items()},
            row.memory or SourceBuild.memory,
        )
        for name, row in table.items()
        if name in packages
    }
