"""The components, a module each: what decides their versions, and what they need."""

from rdma_images.components.aws_ofi_nccl import AWS_OFI_NCCL
from rdma_images.components.base import BASE
from rdma_images.components.cuda import CUDA
from rdma_images.components.definition import ComponentDefinition
from rdma_images.components.efa_installer import EFA_INSTALLER, LIBFABRIC, RDMA_CORE
from rdma_images.components.erdma_apt import ERDMA_APT
from rdma_images.components.nccl import NCCL
from rdma_images.components.nccl_tests import NCCL_TESTS
from rdma_images.components.python import PYTHON
from rdma_images.components.pytorch import CUDNN, PYTORCH

# What decides another one's version comes before it. Plans, sources and Dockerfiles have them in this order.
ALL: tuple[ComponentDefinition, ...] = (
    BASE,
    PYTHON,
    PYTORCH,
    CUDA,
    NCCL,
    EFA_INSTALLER,
    LIBFABRIC,
    RDMA_CORE,
    AWS_OFI_NCCL,
    NCCL_TESTS,
    ERDMA_APT,
    CUDNN,
)
BY_NAME = {component.name: component for component in ALL}

_FOUNDATIONS = tuple(component for component in ALL if component.role == "foundation")
_SUBJECTS = tuple(component for component in ALL if component.role == "subject")
_PARTS = tuple(component for component in ALL if component.role == "part")
IN_TABLES = tuple(component for component in (*_FOUNDATIONS, *_SUBJECTS, *_PARTS) if component.in_tables)
IN_TAGS = tuple(component for component in (*_SUBJECTS, *_PARTS, *reversed(_FOUNDATIONS)) if component.tag is not None)


def axis_of_wheel(name: str) -> str | None:
    """Return the axis that decides a package (name in normal form); None for none."""
    return next((component.name for component in ALL if component.wheel and component.wheel.fullmatch(name)), None)
