"""The NCCL of an image: torch's pin decides it, unless the matrix or `--set` does."""

from dataclasses import dataclass

from rdma_images.components import cuda, pytorch
from rdma_images.components.definition import Axis, ComponentDefinition, sorted_versions
from rdma_images.core import versions
from rdma_images.core.image import Details
from rdma_images.facts import gpu_software

NAME = "nccl"


@dataclass(frozen=True)
class NcclDetails(Details):
    """The wheel's name on the package index."""

    package: str


NCCL = ComponentDefinition(
    name=NAME,
    position=50,
    axis=Axis(
        NAME,
        lambda facts: sorted_versions(facts.nccl.releases),
        decided_by=pytorch.NAME,
        version_from=lambda facts, values: facts.torch.releases[values[pytorch.NAME]].nccl,
    ),
    tag="nccl",
    details=lambda chosen, _: NcclDetails(package=f"nvidia-nccl-cu{versions.major(chosen[cuda.NAME])}"),
    was_tested=lambda version, fabric, facts: fabric != "erdma" or version in facts.erdma.nccl.working,
    needs=(cuda.NAME,),
    wheel=gpu_software.WHEEL_NAME,
    decides_wheels=True,
    must_be_measured=True,
)
