"""The torch that a process gets, and the libraries it really maps."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from typing import Any, Iterator

from rdma_images.validate.probes import leftovers, loader


def imported_torch() -> dict[str, Any] | None:
    """Return versions and mapped files of `import torch`; None where it is not installed.

    `compiled_nccl` is a constant of the build; `nccl` is the file that is mapped and what it answers. `searched` are
    the folders and files that decided all of this: see searched_paths.
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
        "nccl": [{"path": path, "version": decoded(loader.nccl_version(path))} for path in nccl],
        "mapped": sorted(path for path in mapped if not path.startswith("/usr/lib/python"))[:400],
        "searched": searched_paths(mapped),
    }


def searched_paths(mapped: list[str]) -> list[str]:
    """Return what the import may have read, by name and behind links.

    What lies below another is left out. These are the folders of sys.path, the files and folders that environment
    variables name but PATH, since the import starts no program, and the files of all imported modules and of `mapped`
    libraries. "/", from which `python -c` imports too, is not among them.
    """
    paths = {path for name in _named_paths(mapped) for path in (os.path.abspath(name), os.path.realpath(name))}
    highest: list[str] = []
    for path in sorted(paths - {"/"}, key=lambda path: path.split("/")):
        if not highest or not path.startswith(highest[-1] + "/"):
            highest.append(path)
    return highest


def _named_paths(mapped: list[str]) -> Iterator[str]:
    yield from sys.path
    for name, value in os.environ.items():
        if name != "PATH" and not leftovers.may_be_secret(name, value):
            yield from (part for part in value.split(":") if part.startswith("/"))
    for module in list(sys.modules.values()):
        if file := getattr(module, "__file__", None):
            yield str(file)
    yield from mapped


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
    return ".".join(str(part) for part in version[:3]) if isinstance(version, tuple) else decoded(version)


def decoded(number: int | None) -> str:
    """Return NCCL's number as a version, 22809 as "2.28.9"; "" for None.

    Before 2.9 it wrote 2804 for 2.8.4.
    """
    if not number:
        return ""
    major, remainder = (number // 10000, number % 10000) if number >= 10000 else (number // 1000, number % 1000)
    return "%d.%d.%d" % (major, remainder // 100, remainder % 100)
