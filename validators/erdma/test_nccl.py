"""The NCCL of an image for eRDMA."""

import pytest

from rdma_images.core import versions
from rdma_images.facts import facts_file
from rdma_images.facts.erdma import Erdma
from rdma_images.inspection.inspection import InstalledNccl
from rdma_images.validate.pytest_plugin import Requirement


@pytest.mark.validator("erdma.nccl", source="facts/erdma.yaml")
def test_on_erdma(nccl: InstalledNccl, require: Requirement) -> None:
    """The NCCL in use starts on an eRDMA device, and is no older than Alibaba asks for."""
    table = facts_file.read(Erdma)
    broken, requirement = table.broken_nccl.get(nccl.version), table.minimum
    if not versions.at_least(nccl.version, requirement.nccl):
        problem, fix = (
            f"older than {requirement.nccl}, which Alibaba asks for on eRDMA [{table.cite(requirement)}]",
            f"install NCCL {requirement.nccl} or later",
        )
    else:
        problem = f"{broken.why} [{table.cite(broken)}]" if broken else ""
        fix = f"install {broken.fixed} or later over torch's pin" if broken else ""
    require(
        not problem,
        expected=f"{requirement.nccl} or later, and none of {', '.join(table.broken_nccl)}",
        actual=f"NCCL {nccl.version}: {problem}" if problem else nccl.version,
        fix=fix,
        severity=None if broken else "warning",
    )
