"""The torch that a process gets, and the libraries it really maps."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from typing import Any

from rdma_images.validate.probes import loader


def imported_torch() -> dict[str, Any] | None:
    """Return versions and mapped files of `import torch`; None where it is not installed.

    `compiled_nccl` is a constant of the build; `nccl` is the file that is mapped and what it answers.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    mapped = mapped_libraries()
    nccl = [path for path in mapped if re.fullmatch(r"libnccl\.so(\.\d+)*", os.path.basename(path))]
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "file": torch.__file__,
        "compiled_nccl": compiled_nccl(torch),
        "nccl": [{"path": path, "version": decode_version(loader.nccl_version(path))} for path in nccl],
        "mapped": sorted(path for path in mapped if not path.startswith("/usr/lib/python"))[:400],
    }


def mapped_libraries() -> list[str]:
    """Return the shared libraries mapped into this process, in the order of their addresses."""
    with open("/proc/self/maps") as file:
        paths = [line.split(None, 5)[5].strip() for line in file if len(line.split(None, 5)) == 6]
    return list(dict.fromkeys(p for p in paths if ".so" in os.path.basename(p)))


def compiled_nccl(torch: Any) -> str:
    """Return the NCCL version that torch was compiled against; "" for a build without NCCL."""
    try:
        version = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError, ImportError):
        return ""
    return ".".join(str(part) for part in version[:3]) if isinstance(version, tuple) else decode_version(version)


def decode_version(number: int | None) -> str:
    """Return NCCL's number as a version, 22809 as "2.28.9"; "" for None.

    Before 2.9 it wrote 2804 for 2.8.4.
    """
    if not number:
        return ""
    major, remainder = (number // 10000, number % 10000) if number >= 10000 else (number // 1000, number % 1000)
    return "%d.%d.%d" % (major, remainder // 100, remainder % 100)
