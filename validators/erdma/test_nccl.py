"""The NCCL of an image for eRDMA."""

from rdma_images.core import versions
from rdma_images.facts import facts_file
from rdma_images.facts.fabric_software import Erdma
from rdma_images.inspection.inspection import InstalledNccl
from rdma_images.validate.validator import Requirement, validator


@validator("erdma.nccl", source="facts/erdma.yaml", severity="warning")
def test_on_erdma(nccl: InstalledNccl, require: Requirement) -> None:
    """The NCCL in use is no older than Alibaba asks for; nccl.broken reports one that does not start."""
    table = facts_file.read(Erdma)
    minimum = table.nccl.minimum
    is_old = not versions.at_least(nccl.version, minimum)
    reason = f"NCCL {nccl.version}: older than {minimum}, which Alibaba asks for on eRDMA"
    require(
        not is_old,
        expected=f"{minimum} or later",
        actual=f"{reason} [{table.cite(table.nccl, 'minimum')}]" if is_old else nccl.version,
        fix=f"install NCCL {minimum} or later" if is_old else "",
    )
