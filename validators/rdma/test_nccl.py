"""An image for a fabric has an NCCL."""

import re
from pathlib import PurePosixPath

import pytest

from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.in_use import LIBNCCL, NO_LIBRARY, has_broken_file

CUDA_FILE = re.compile(r"lib(?:cuda|cudart|cublas|cudnn|torch_cuda)[-_.\d\w]*\.so[.\d]*|\w+_perf")
LIBTORCH_CUDA = "libtorch_cuda"  # that has NCCL in itself


def uses_gpus(inspection: Inspection, files: Files, libraries: Libraries) -> bool:
    """Return whether the image asks for GPUs, or has what uses CUDA or NCCL."""
    devices = inspection.subject.environment.get("NVIDIA_VISIBLE_DEVICES", "")
    cuda = any(CUDA_FILE.fullmatch(base_name(path)) for path in files.libraries)
    return bool(devices) or cuda or any(LIBNCCL in closure_.missing for closure_ in libraries.closures.values())


@pytest.mark.validator("nccl.found", source="a training image without NCCL cannot use a fabric")
def test_found(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """A libnccl.so.2, by that name, is in the image, or NCCL in torch's own library, where anything in it uses GPUs."""
    if has_broken_file(inspection, libraries, LIBNCCL):
        pytest.skip(NO_LIBRARY)
    if not libraries.nccl and not uses_gpus(inspection, files, libraries):
        pytest.skip("nothing in the image uses GPUs")
    nameless = _nameless_nccl(inspection, files, libraries)
    require(
        any(not library.error for library in libraries.nccl.values()) and not nameless,
        expected=f"at least one {LIBNCCL}",
        actual=f"programs ask for {LIBNCCL}, and there is only {nameless}, without a link of that name"
        if nameless
        else ", ".join(libraries.nccl) or f"NCCL is not installed: no {LIBNCCL} in the whole file system",
        fix=f"ln -s {base_name(nameless)} {PurePosixPath(nameless).parent}/{LIBNCCL}, or run ldconfig after the copy: "
        "NCCL's links have to be copied, too"
        if nameless
        else "install torch with its NCCL wheel, or the wheel nvidia-nccl-cu13 (cu12 for CUDA 12)",
    )


def _nameless_nccl(inspection: Inspection, files: Files, libraries: Libraries) -> str:
    """Return a libnccl where none has a name that is asked for; "" where one has."""
    words = [word for value in inspection.subject.environment.values() for word in re.split(r"[:\s]+", value)]
    readable = [path for path, library in libraries.nccl.items() if not library.error]
    file_names = {LIBNCCL, "libnccl.so", *map(base_name, words)}
    has_name = any(base_name(path) in file_names for path in files.libraries) or any(
        LIBTORCH_CUDA in path for path in readable
    )
    return "" if has_name or not readable else readable[0]
