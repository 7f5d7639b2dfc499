"""The torch that a process gets, and the libraries it really maps."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
from typing import Any, Callable, Iterator

from rdma_images.validate.probes import extensions, leftovers, loader, shadows

COMPILED_FOR_NUMPY = re.compile(r"A module that was compiled using NumPy 1\.x cannot be run in\s+NumPy [\d.]+\w*")
MAX_PRINTED = 1 << 20  # bytes


def imported_torch() -> dict[str, Any] | None:
    """Return versions and mapped files of `import torch`; None where it is not installed.

    `compiled_nccl` is a constant of the build; `nccl` is the file that is mapped and what it answers. `numpy` is what
    NumPy says of modules that were compiled for its version 1. `extensions` has what keeps each module that was
    compiled against torch from being loaded, and `optional` those without which their package goes on. `searched` are
    the folders and files that decided all of this: see searched_paths.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    with captured_errors() as printed:
        try:
            torch = importlib.import_module("torch")
        except Exception as error:
            shadow = shadows.explain_failure(error, shadows.find_shadows(sys.path), ("torch",))
            if not shadow:
                raise
            words = next((line for line in str(error).splitlines() if line.strip()), "")
            raise ImportError("%s: %s" % (shadow, words)) from error
        complaint = numpy_complaint(printed())
    mapped, faults = mapped_libraries(), extensions.loaded_extensions()
    nccl = [path for path in mapped if re.fullmatch(r"libnccl\.so(\.\d+)*", os.path.basename(path))]
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "file": torch.__file__,
        "numpy": complaint,
        "compiled_nccl": compiled_nccl(torch),
        "nccl": [{"path": path, "version": decoded(loader.nccl_version(path))} for path in nccl],
        "extensions": faults,
        "optional": [path for path, fault in faults.items() if fault and extensions.is_optional(path)],
        "mapped": [path for path in mapped if not path.startswith("/usr/lib/python")][:400],
        "searched": searched_paths(mapped),
    }


@contextlib.contextmanager
def captured_errors() -> Iterator[Callable[[], str]]:
    """Provide what this process prints on its standard error in the block.

    It goes nowhere else.
    """
    # A Python that was built for an older C library has no memfd_create.
    file = os.memfd_create("errors") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
    earlier = os.dup(2)
    os.dup2(file, 2)
    try:
        yield lambda: os.pread(file, MAX_PRINTED, 0).decode("utf-8", "replace")
    finally:
        os.dup2(earlier, 2)
        os.close(earlier)
        os.close(file)


def numpy_complaint(printed: str) -> str:
    """Return NumPy's first sentence about a module that was compiled for its version 1.

    Returns:
        "" where it has none.
    """
    match = COMPILED_FOR_NUMPY.search(printed)
    return " ".join(match.group().split()) if match else ""


def searched_paths(mapped: list[str]) -> list[str]:
    """Return what the import may have read, by name and behind links.

    What lies below another is left out. These are the folders of sys.path, the files and folders that environment
    variables name, and the files of all imported modules and of `mapped` libraries. "/", from which `python -c` imports
    too, is not among them.
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
        if not leftovers.may_be_secret(name, value):
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
