"""Read the kernel's files, and ask programs and libraries of this node."""

from __future__ import annotations

import ctypes
import errno
import glob
import importlib.metadata
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Version = tuple[int, int, int]

PROGRAM_SECONDS = 20  # seconds for a program to answer
TIMED_OUT = 124  # as of coreutils' timeout


def read_file(path: str) -> str:
    """Return the content of one of the kernel's files; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def first_line(path: str) -> str:
    """Return the first line of one of the kernel's files; "" where it cannot be read."""
    return read_file(path).partition("\n")[0].strip()


def kernel_messages(root: str) -> Iterator[tuple[float, str]]:
    """Yield the kernel log's messages with their age in seconds; none if unreadable."""
    try:
        descriptor = os.open(root + "/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # a container has none, and a user may not read it
        return
    newest = float((first_line(root + "/proc/uptime").split() or ["0"])[0])
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while True:
            try:
                record = file.read(1 << 16)
            except OSError:  # no more, or one that was overwritten
                return
            if not record:
                return
            for match in re.finditer(rb"^\d+,\d+,(\d+),[^;\n]*;(.*)", record, re.MULTILINE):
                yield newest - int(match.group(1)) / 1e6, match.group(2).decode("utf-8", "replace")


def open_errno(path: str) -> int:
    """Return the errno of opening a device's file; 0 where it opens."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def explain_open_error(error_number: int) -> str:
    """Return the words of an errno of opening a device's file, and what refuses it."""
    causes = {
        errno.EACCES: "user %d has no right to its file: rdma-core's udev rules give it mode 0666" % os.getuid(),
        errno.EPERM: "the container's cgroup does not let the device in: ask for it, as with --device",
    }
    return "%s%s" % (os.strerror(error_number), "; " + causes[error_number] if error_number in causes else "")


def library_version(path: str) -> Version | None:
    """Return the version of an NCCL; None where the loader finds none at `path`."""
    number = ctypes.c_int()
    try:
        ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    major, minor_and_patch = divmod(number.value, 10000 if number.value >= 10000 else 1000)
    return (major, minor_and_patch // 100, minor_and_patch % 100)


def nccl_version() -> Version | None:
    """Return the version of the NCCL that `import torch` or the loader loads, or None."""
    # One that is preloaded, as by LD_PRELOAD, comes before any other.
    beside_torch = [folder + "/nvidia/nccl/lib/libnccl.so.2" for folder in import_folders()]
    versions = map(library_version, [*loaded_libraries("libnccl.so")[:1], *beside_torch, "libnccl.so.2"])
    return next((version for version in versions if version), None)


def python_path() -> list[str]:
    """Return the folders of PYTHONPATH, which this process may run without (python3 -E)."""
    return [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]


def import_folders() -> list[str]:
    """Return the folders from which the job's Python imports, those of PYTHONPATH first."""
    return list(dict.fromkeys([*python_path(), *sys.path]))


def loaded_libraries(beginning: str) -> list[str]:
    """Return the paths of this process's libraries whose names begin so."""
    paths = [line.split()[-1] for line in read_file("/proc/self/maps").splitlines() if "/" + beginning in line]
    return list(dict.fromkeys(paths))


def describe_symbol_library(message: str) -> str:
    """Return which library lacks an undefined symbol; "" where none is known.

    The symbols of NVIDIA's libraries begin as their files' names: ncclCommSplit is libnccl's.
    """
    match = re.search(r"undefined symbol: (([a-z]{3,})[A-Z]\w*)", message)
    if match is None:
        return ""
    symbol, name = match.groups()
    beside_torch = [
        path for folder in import_folders() for path in glob.glob(folder + "/nvidia/*/lib/lib%s*.so*" % name)
    ]
    for path in [*loaded_libraries("lib" + name), *beside_torch]:
        try:
            has_symbol = hasattr(ctypes.CDLL(path), symbol)
        except OSError:
            continue
        if not has_symbol:
            version = library_version(path) if name == "nccl" else None
            return "; %s%s lacks it" % (path, ", version %d.%d.%d," % version if version else "")
    return ""


def torch_version() -> str:
    """Return the version of the job's torch, without importing it; "" for none."""
    distributions = importlib.metadata.distributions(name="torch", path=import_folders())
    return next((distribution.version for distribution in distributions), "")


def has_library(name: str) -> bool:
    """Return whether the loader finds a library here."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def run_program(*command: str) -> tuple[int, str] | None:
    """Return a program's exit code and output; None where there is no such program.

    Returns:
        TIMED_OUT and a sentence for one that has not ended in PROGRAM_SECONDS.
    """
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PROGRAM_SECONDS)
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        return TIMED_OUT, "no answer in %d s" % PROGRAM_SECONDS
    except OSError as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")
