"""The file tree of an image: its libraries for a fabric, its large files, and leftovers."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any

from rdma_images.validate.probes import conditions, leftovers, rootfs

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
MAX_ENTRIES = 200  # entries of a list that grows with the image
MAX_SIZES = 40


def summary(entries: Iterator[rootfs.RootEntry], files: rootfs.Root) -> dict[str, Any]:
    """Summarise a tree in one pass.

    Args:
        entries: the entries of the tree.
        files: reads the content of the entry that `entries` has just yielded.

    Returns:
        By name, among others: `libraries`, the files and links with a name that matters, by path; `sizes`, bytes by
        folder.
    """
    libraries: dict[str, dict[str, Any]] = {}
    sizes: dict[str, int] = {}
    leftovers_by_kind: dict[str, dict[str, str]] = {"secret": {}, "cache": {}}
    count = total = 0
    for entry in entries:
        count += 1
        name = os.path.basename(entry.path)
        is_file, is_folder = stat.S_ISREG(entry.mode), stat.S_ISDIR(entry.mode)
        if (not is_folder or ".so" in name) and _is_library(entry.path, name):
            libraries[entry.path] = _library_facts(entry)
        if is_file:
            total += entry.size
            category = counted_folder(entry.path)
            sizes[category] = sizes.get(category, 0) + entry.size
            note_leftover(entry, leftovers_by_kind, lambda path: files.start(path, leftovers.MAX_TEXT_BYTES))
    return {
        "count": count,
        "bytes": total,
        "libraries": dict(sorted(libraries.items())),
        "sizes": dict(sorted(sizes.items(), key=lambda pair: -pair[1])[:MAX_SIZES]),
        "leftovers": {kind: dict(sorted(reasons.items())) for kind, reasons in leftovers_by_kind.items()},
    }


def _library_facts(entry: rootfs.RootEntry) -> dict[str, Any]:
    return {
        "size": 0 if stat.S_ISDIR(entry.mode) else entry.size,
        "target": entry.target,
        "identity": entry.identity,
        "condition": conditions.mode_condition(entry.mode),
    }


def _is_library(path: str, name: str) -> bool:
    return bool(LISTED_NAME.fullmatch(name) or EXTENSION.fullmatch(path) or MODULE.fullmatch(path))


def note_leftover(
    entry: rootfs.RootEntry, leftovers_by_kind: dict[str, dict[str, str]], text: Callable[[str], bytes | None]
) -> None:
    """Add a file that has no business in an image to `leftovers_by_kind`.

    The form is kind -> path -> why.
    """
    kind = leftovers.leftover_kind(entry.path)
    why = leftovers.BY_NAME
    if kind in (None, "secret") and leftovers.may_hold_secret(entry.path, entry.size):
        content = text(entry.path)
        secret = leftovers.secret_in(content) if content else None
        if secret:
            kind, why = "secret", secret
    if kind and len(leftovers_by_kind[kind]) < MAX_ENTRIES:
        leftovers_by_kind[kind][entry.path] = why


def counted_folder(path: str) -> str:
    """Return the place whose size `path` counts for.

    That is a package of site-packages, else two folders from the root.
    """
    before, inside, after = path.partition("/site-packages/")
    if inside:
        steps = after.split("/")
        depth = 2 if steps[0] == "nvidia" else 1
        return before + inside + "/".join(steps[: min(depth, max(len(steps) - 1, 1))])
    steps = path.split("/")
    return "/".join(steps[: min(4, len(steps) - 1)]) or "/"
