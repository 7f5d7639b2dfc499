"""The CUDA toolkit of an image that has one: found, and of the image's CUDA."""

import re
from pathlib import PurePosixPath

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import MeasuredPackages
from rdma_images.inspection.values import ToolRun
from rdma_images.validate.pytest_plugin import Requirement

COMPILER = "nvcc --version"
WHEEL = "nvidia-cuda-nvcc"
COMPATIBLE = (
    "CUDA's minor version compatibility: what is compiled for another major does not run with the image's libraries"
)


@pytest.fixture
def nvcc(inspection: Inspection) -> ToolRun:
    """Return what nvcc says of itself, found on the PATH or where toolkits are."""
    run = (inspection.measured.tools or {}).get(COMPILER)
    return run if run and run.path else pytest.skip("the image has no nvcc")


def compiles_for(inspection: Inspection, packages: MeasuredPackages | None) -> str:
    """Return the CUDA that nvcc should be of: its wheel's very version, else the major of the image's.

    "" if none is known.
    """
    folders = packages.wheels.values() if packages else ()
    for wheels in folders:
        if WHEEL in wheels:
            return ".".join(wheels[WHEEL].split(".")[:2])
    torch = inspection.measured.torch
    cuda = (
        inspection.expected.components.get("cuda")
        or inspection.subject.label("component.cuda")
        or (torch and torch.cuda)
        or ""
    )
    return cuda.partition(".")[0]


@pytest.mark.validator("cuda.toolkit", source=COMPATIBLE, severity="warning")
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
    )
