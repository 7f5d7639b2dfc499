"""The CUDA of an image: torch's wheels decide it; without torch, the matrix or `--set`."""

from collections.abc import Iterator
from dataclasses import dataclass

from rdma_images.components import pytorch
from rdma_images.components.definition import Axis, Combination, ComponentDefinition, sorted_versions
from rdma_images.core import versions
from rdma_images.core.image import Details, HostRequirement
from rdma_images.facts import Facts

NAME = "cuda"
FOLDER = "/usr/local/cuda"  # where NVIDIA's images, and what compiles CUDA, have the toolkit


@dataclass(frozen=True)
class CudaDetails(Details):
    """The toolkit's folders in a devel image; None in a runtime image."""

    home: str | None = None


def runtime_requirement(version: str, facts: Facts) -> str:
    """Return the requirement of the runtime's wheel for a CUDA version ("13.0")."""
    return f"{facts.cuda.majors[str(versions.major(version))].runtime}=={version}.*"


def runtime_library(version: str, facts: Facts) -> str:
    """Return the file of that wheel that programs load, below site-packages."""
    return facts.cuda.majors[str(versions.major(version))].library


def toolkit_requirements(version: str, facts: Facts) -> tuple[str, ...]:
    """Return the requirements of the toolkit's wheels for a CUDA version ("13.0")."""
    return tuple(f"{wheel}=={version}.*" for wheel in facts.cuda.majors[str(versions.major(version))].toolkit)


def _details(combination: Combination, _: Facts) -> CudaDetails:
    if combination["variant"] != "devel":
        return CudaDetails()
    return CudaDetails(home=FOLDER, program_folders=(f"{FOLDER}/bin",))


def _requirements(combination: Combination, facts: Facts) -> Iterator[HostRequirement]:
    major = versions.major(combination[NAME])
    driver = facts.cuda.majors[str(major)]
    yield HostRequirement(
        name="nvidia-driver",
        at_least=driver.driver,
        reason=f"CUDA {major} runs on no older driver",
        source=facts.cuda.cite(driver),
    )


def _agrees(planned: str, measured: str) -> bool:
    """Return whether the versions agree; of CUDA the major may be all that was measured."""
    planned_parts, measured_parts = planned.split("."), measured.split(".")
    length = min(len(planned_parts), len(measured_parts))
    return measured_parts[:length] == planned_parts[:length]


CUDA = ComponentDefinition(
    name=NAME,
    position=40,
    axis=Axis(
        NAME,
        lambda facts: sorted_versions(release.cuda for release in facts.torch.releases.values()),
        decided_by=pytorch.NAME,
        version_from=lambda facts, values: facts.torch.releases[values[pytorch.NAME]].cuda,
    ),
    tag="cu",
    details=_details,
    requirements=_requirements,
    decides_wheels=True,
    must_be_measured=True,
    matches_measured=_agrees,
)
