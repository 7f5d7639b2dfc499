"""The CUDA toolkit of an image that has one: found, and of the image's CUDA."""

import re
from pathlib import PurePosixPath

import pytest

from rdma_images.facts import facts_file
from rdma_images.facts.faults import Compiling
from rdma_images.facts.instances import Gpus, Instances
from rdma_images.inspection.inspection import FOLDER_PREFIX, Inspection
from rdma_images.inspection.measurements import Libraries, MeasuredPackages
from rdma_images.inspection.values import ToolRun
from rdma_images.validate.pytest_plugin import Requirement
from validators.compilers import compiling_packages, image_variables, missing_needs

NVCC_VERSION = "nvcc --version"
NVCC_WHEEL = "nvidia-cuda-nvcc"
COMPATIBILITY_SOURCE = (
    "CUDA's minor version compatibility: what is compiled for another major does not run with the image's libraries"
)

CODE_SOURCE = (
    "NVIDIA's CUDA programming guide, Binary Compatibility and PTX Compatibility: real code runs within its major "
    "version, and PTX on later GPUs; facts/gpus.yaml"
)
MAX_SHOWN = 4
ESSENTIAL_LIBRARY = re.compile(r"/(?:libtorch_cuda|libnccl)[\w.]*$")  # without which nothing runs


@pytest.fixture
def nvcc(inspection: Inspection) -> ToolRun:
    """Return what nvcc says of itself, found on the PATH or where toolkits are."""
    run = (inspection.measured.tools or {}).get(NVCC_VERSION)
    return run if run and run.path else pytest.skip("the image has no nvcc")


def compiles_for(inspection: Inspection, packages: MeasuredPackages | None) -> str:
    """Return the CUDA that nvcc should be of.

    It is its wheel's very version, else the major of the image's. "" if none is known.
    """
    folders = packages.wheels.values() if packages else ()
    for wheels in folders:
        if NVCC_WHEEL in wheels:
            return ".".join(wheels[NVCC_WHEEL].split(".")[:2])
    torch = inspection.measured.torch
    cuda = (
        inspection.expected.components.get("cuda")
        or inspection.subject.label("component.cuda")
        or (torch and torch.cuda)
        or ""
    )
    return cuda.partition(".")[0]


def uses_nvcc(inspection: Inspection) -> bool:
    """Return whether a package compiles with nvcc where it runs, and lacks nothing for it."""
    settings, packages, tree = inspection.measured.settings, inspection.measured.packages, inspection.measured.tree
    if not settings or not settings.programs or not packages or not tree:
        return False
    environment = image_variables(inspection)
    rows = compiling_packages(facts_file.read(Compiling), tree.files, packages, environment)
    return any(
        "nvcc" in row.needs and not list(missing_needs(row.needs, settings.programs, environment)) for row, _ in rows
    )


@pytest.mark.validator("cuda.toolkit", source=COMPATIBILITY_SOURCE, severity="warning")
def test_toolkit(inspection: Inspection, nvcc: ToolRun, require: Requirement) -> None:
    """nvcc is on the PATH, and compiles for the image's CUDA."""
    required = compiles_for(inspection, inspection.measured.packages)
    release = re.search(r"release (\d+\.\d+)", nvcc.out)
    actual = release[1] if release else "no version"
    on_path = str(PurePosixPath(nvcc.path).parent) in inspection.subject.environment.get("PATH", "").split(":")
    require(
        on_path and f"{actual}.".startswith(f"{required}." if required else ""),
        expected=f"nvcc of CUDA {required or 'any version'}, on the PATH",
        actual=f"{nvcc.path}, {'on' if on_path else 'not on'} the PATH, is of CUDA {actual}"
        + (f", and the image of {required}" if required else ""),
        fix="put the toolkit's folder on the PATH, and make /usr/local/cuda a link to the one of the image's CUDA",
        severity="note" if inspection.subject.ref.startswith(FOLDER_PREFIX) and not uses_nvcc(inspection) else None,
    )


def runs_on(codes: list[str], capability: str) -> bool:
    """Return whether code for one of these ("sm_90", or "compute_90" for PTX) runs on a GPU."""
    gpu = tuple(map(int, capability.split(".")))
    for code in codes:
        kind, _, number = code.partition("_")
        compiled = divmod(int(number), 10)
        if compiled <= gpu and (kind == "compute" or compiled[0] == gpu[0]):
            return True
    return False


@pytest.mark.validator("cuda.architectures", source=CODE_SOURCE)
def test_architectures(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """torch, NCCL and each package with code for GPUs have some for those of the instance type that was asked for."""
    instance = inspection.expected.instance or pytest.skip("no instance type was asked for: --instance")
    gpu = facts_file.read(Instances).find(instance).gpu or pytest.skip(f"{instance} has no GPU")
    row = facts_file.read(Gpus).gpus.get(gpu) or pytest.skip(f"the compute capability of {gpu} is not known")
    if not libraries.kernels:
        pytest.skip("no library of the image holds code for GPUs")
    packages: dict[str, list[str]] = {}
    for path in libraries.kernels:
        before, inside, after = path.partition("-packages/")
        packages.setdefault(f"{before}{inside}{after.split('/')[0]}" if inside else path, []).append(path)
    # A package may have a module for each GPU.
    lacking = [
        paths[0]
        for paths in packages.values()
        if not any(runs_on(libraries.kernels[path], row.capability) for path in paths)
    ]
    name = f"sm_{row.capability.replace('.', '')}"
    lines = [f"{path} has code for {', '.join(libraries.kernels[path])}, and none for {name}" for path in lacking]
    require(
        not lines,
        expected=f"code that runs on the {gpu} of {instance} ({name}) in each of {len(packages)}",
        actual="; ".join(lines[:MAX_SHOWN]) or "each has some",
        fix=f"install a release that has code for {name}, or compile it with TORCH_CUDA_ARCH_LIST={row.capability}",
        severity=None if any(ESSENTIAL_LIBRARY.search(path) for path in lacking) else "warning",
    )
