"""The file tree of an image: its size, and its libraries for a fabric."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Any

from rdma_images.validate.probes import conditions, rootfs

LISTED_NAME = re.compile(
    r"""lib(?:nccl|nccom|fabric|efa|ibverbs|rdmacm|erdma|mlx[45]|cuda|nvidia-ml|nvidia-ptxjitcompiler|cudart|cublas|cublasLt|cudnn|cufft|curand
        |cusolver|cusparse|cusparseLt|nvJitLink|nvrtc|nvshmem_host|cupti|cufile|gdrapi|mpi)(?:[-_][\w.-]+)?\.so(?:\.[\d.]+)?
    | lib[\w]+-rdmav\d+\.so
    | lib(?:plugin_[A-Z]\w*|nixl(?:_\w+)?|serdes|uc[pst]|uct_\w+|tensorrt_llm_nixl_wrapper|torch_cuda(?:_cpp)?)
        (?:-[0-9a-f]{8})?\.so(?:\.[\d.]+)?
    | nvshmem_(?:transport|bootstrap)_\w+\.so(?:\.[\d.]+)?
    | libpython3\.\d+\.so(?:\.[\d.]+)?
    | \w+_perf
    | eadm | mpirun | orted | prted | ucx_info | sshd? | rsh
    | [\w-]+\.driver""",
    re.VERBOSE,
)
# Modules and programs of Python packages that open a network by themselves, or call NCCL or MPI.
EXTENSION = re.compile(
    r".*-packages/(?:mooncake/(?:[\w.-]+\.so|mooncake_\w+)|deep_ep_cpp[\w.-]*\.so|uccl/ep[\w.-]*\.so"
    r"|nixl_ep/nixl_ep_cpp[\w.-]*\.so|cupy_backends/cuda/libs/nccl\.[\w.-]*so|horovod/torch/mpi_lib[\w.-]*\.so|mpi4py/MPI\.cpython[\w.-]*so)"
)
# Libraries of Python packages, and modules elsewhere by the names that Python imports: without those of torch and
# Python themselves.
MODULE = re.compile(
    r"(?!.*/(?:torch|functorch|triton|lib-dynload)/)"
    r"(?:.*-packages/(?!nvidia/).+\.so(?:\.[\d.]+)?|.+(?:\.cpython-3\d+[\w-]*|\.abi3)\.so)"
)
IMPORTED = re.compile(r".*/(?:(?!lib)[^/]+|[^/]+(?:\.cpython-3\d+[\w-]*|\.abi3))\.so")  # those that Python imports


def summary(entries: Iterable[rootfs.RootEntry]) -> dict[str, Any]:
    """Return how many entries and bytes a tree has, and by path its `library_files`: those whose names matter."""
    libraries: dict[str, dict[str, Any]] = {}
    count = total = 0
    for entry in entries:
        count += 1
        name = os.path.basename(entry.path)
        if (not stat.S_ISDIR(entry.mode) or ".so" in name) and _is_library(entry.path, name):
            libraries[entry.path] = _library_facts(entry)
        if stat.S_ISREG(entry.mode):
            total += entry.size
    return {"count": count, "bytes": total, "library_files": dict(sorted(libraries.items()))}


def _library_facts(entry: rootfs.RootEntry) -> dict[str, Any]:
    return {
        "size": 0 if stat.S_ISDIR(entry.mode) else entry.size,
        "target": entry.target,
        "identity": entry.identity,
        "condition": conditions.mode_condition(entry.mode),
    }


def _is_library(path: str, name: str) -> bool:
    return bool(LISTED_NAME.fullmatch(name) or EXTENSION.fullmatch(path) or MODULE.fullmatch(path))
