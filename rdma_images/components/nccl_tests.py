"""nccl-tests, which measure collectives, compiled for all GPUs of the fabric or for one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from rdma_images.components import cuda, efa_installer, gpus, nccl
from rdma_images.components.definition import Axis, Combination, ComponentDefinition, release_source, sorted_versions
from rdma_images.core.image import TEMPLATE_ONLY, Details, Fabric, machine_name
from rdma_images.facts import Facts
from rdma_images.facts.gpu_software import Backend

NAME = "nccl-tests"
GPU = "gpu"
# Source: the tags of github.com/NVIDIA/nccl-tests; it publishes no checksums, the lock has them.
URL = "https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v{version}.tar.gz"
ALL_BACKENDS: tuple[Backend, ...] = get_args(Backend)


@dataclass(frozen=True)
class OmittedBackend:
    """A backend of NCCL's GPU-initiated networking that is left out, or for some GPUs."""

    backend: Backend
    except_architectures: tuple[int, ...]  # the values of __CUDA_ARCH__ that it is compiled for: (900, 1000)


@dataclass(frozen=True)
class NcclTestsDetails(Details):
    """The GPUs, options and MPI that nccl-tests are compiled for."""

    architectures: tuple[str, ...]
    gencode: str  # the options for them, as nvcc takes them
    omitted_backends: tuple[OmittedBackend, ...] = field(metadata=TEMPLATE_ONLY)
    mpi: str  # the folder of their MPI
    mpi_packages: str  # the packages of that MPI, and of its headers; empty where the fabric brings it
    mpi_headers: str

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the architectures of their code."""
        return {"architectures": " ".join(self.architectures)}


def _details(combination: Combination, facts: Facts) -> NcclTestsDetails:
    architectures = gpus.resolve_architectures(combination[GPU], combination.fabric, combination[cuda.NAME], facts)
    has_mpi = combination.fabric == "efa"
    return NcclTestsDetails(
        program_folders=("/opt/nccl-tests/bin",),
        architectures=architectures,
        gencode=gpus.gencode_options(architectures),
        # An image that falls back may run on any network, and its kernels then meet the backend of that one.
        omitted_backends=tuple(_omitted_backends(architectures, combination.fabric, facts))
        if combination["fallback"] == "refuse"
        else (),
        # Debian's and Ubuntu's place: the list of files of libopenmpi-dev.
        mpi=efa_installer.OPEN_MPI
        if has_mpi
        else f"/usr/lib/{machine_name(combination['platform'])}-linux-gnu/openmpi",
        mpi_packages="" if has_mpi else "openmpi-bin",
        mpi_headers="" if has_mpi else "libopenmpi-dev",
    )


def _omitted_backends(architectures: Sequence[str], fabric: Fabric, facts: Facts) -> Iterator[OmittedBackend]:
    backends = facts.nccl_tests.backends[fabric]
    for backend in ALL_BACKENDS:
        if backend not in backends.used:
            yield OmittedBackend(backend, ())
        elif types := backends.only_on.get(backend):
            supported = [architecture for architecture in architectures if gpus.runs_on_any(architecture, types, facts)]
            yield OmittedBackend(
                backend, tuple(int(architecture.removeprefix("sm_")) * 10 for architecture in supported)
            )


NCCL_TESTS = ComponentDefinition(
    name=NAME,
    position=80,
    axis=Axis(NAME, lambda facts: sorted_versions(facts.nccl_tests.releases)),
    properties=(
        Axis(
            GPU,
            lambda facts: (gpus.ALL_GPUS, *gpus.known_architectures(facts)),
            default=gpus.ALL_GPUS,
            property_of=NAME,
            aliases=gpus.architectures_by_name,
        ),
    ),
    role="subject",
    tag="",
    is_optional=True,
    stage_after=("wheels", "onto-packages"),
    needs=(nccl.NAME, cuda.NAME),
    details=_details,
    is_compiled=lambda _, __: True,
    sources=lambda image, _: release_source(image, NAME, URL),
    source_names=(NAME,),
)
