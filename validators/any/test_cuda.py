"""The CUDA libraries of an image: each once, and none in the driver's place."""

import re

from rdma_images.core import versions
from rdma_images.facts import facts_file
from rdma_images.facts.gpu_software import Cuda
from rdma_images.inspection.inspection import Inspection, cuda_in_use
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.applies import in_tree
from validators.support.in_use import loads_nccl

COMPAT_SOURCE = "docs.nvidia.com/deploy/cuda-compatibility: libcuda of a compat package is in place of the host's"
LIBCUDA = re.compile(r"/libcuda\.so\.(\d{3,}(?:\.\d+)+)$")
STUB_SIZE = 1 << 20  # bytes: the driver's libcuda is over 20 MiB, the toolkit's stub under 100 KiB


@validator(
    "cuda.stub", source="CUDA toolkit: the libcuda in its stubs folder is for linking only", when=in_tree(loads_nccl)
)
def test_cuda_stub(files: Files, libraries: Libraries, require: Requirement) -> None:
    """The loader does not find a stub of the driver."""
    answer = libraries.resolved["libcuda.so.1"]
    file = files.library_files.get(answer.file)
    size = f"{file.size} bytes" if file else "mounted into the container"
    stub = bool(answer.file) and ("/stubs/" in answer.file or (file is not None and file.size < STUB_SIZE))
    require(
        not stub,
        expected="no libcuda.so.1 (the runtime brings the driver's), or a whole one",
        actual=(f"{answer.file}, {size}" if answer.file else "none")
        + (', comes before the driver\'s: NCCL ends with "CUDA driver is a stub library"' if stub else ""),
        fix="take the stubs folder out of ld.so.conf.d and LD_LIBRARY_PATH, run ldconfig",
    )


def driver_version(libraries: Libraries) -> str:
    """Return the version of the driver whose libcuda the loader finds; "" for none."""
    match = LIBCUDA.search(libraries.resolved["libcuda.so.1"].file)
    return match.group(1) if match else ""


@validator("cuda.compat", source=COMPAT_SOURCE, when=in_tree(lambda _, libraries: driver_version(libraries)))
def test_compat(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """A driver library of the image that the loader finds is as new as the CUDA in use asks for."""
    answer = libraries.resolved["libcuda.so.1"]
    driver = driver_version(libraries)
    cuda = cuda_in_use(inspection, libraries) or skip("nothing says which CUDA is in use")
    table = facts_file.read(Cuda)
    row = table.majors.get(cuda.partition(".")[0]) or skip(f"no driver is known for CUDA {cuda}")
    on_machine = not inspection.subject.digest  # whose own driver it then is
    is_new = versions.at_least(driver, row.driver)
    require(
        is_new,
        expected=f"{row.driver} or later, which CUDA {cuda} asks for [{table.cite(row)}]",
        actual=f"driver {driver} at {answer.file}"
        + ("" if on_machine else " comes before the host's")
        + ("" if is_new else f": too old for CUDA {cuda}, which does not start"),
        fix=f"update the driver, or install the cuda-compat of CUDA {cuda}"
        if on_machine
        else f"take {answer.path.rpartition('/')[0]} off LD_LIBRARY_PATH and /etc/ld.so.conf.d and run ldconfig, or "
        f"install the cuda-compat of CUDA {cuda}",
    )
