"""Print findings, read the kernel's files, and ask programs and libraries of this node."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple, Tuple

Finding = Tuple[str, str, str]  # severity ("error", "warning", "note"), subject, sentence
PROGRAM = "rdma-preflight"  # the first word of each line that it prints
EFA_DRIVER = "/sys/module/efa/version"
PROGRAM_SECONDS = 20  # for a program to answer


class NcclLibrary(NamedTuple):
    """The NCCL that the job's processes load."""

    path: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return "%d.%d.%d" % self.version


def node_name() -> str:
    """Return the node's name: in a pod Kubernetes' own, which the pod's hostname is not."""
    return os.environ.get("RDMA_IMAGES_NODE") or socket.gethostname()


def print_line(severity: str, subject: str, sentence: str) -> None:
    """Print `rdma-preflight NODE SEVERITY SUBJECT: SENTENCE` at once, also where standard output is a pipe."""
    print(PROGRAM, node_name(), severity, subject + ":", " ".join(sentence.split()), flush=True)


def print_findings(findings: Iterable[Finding]) -> bool:
    """Print each finding as it comes; return True if one is an error."""
    has_error = False
    for finding in findings:
        has_error |= finding[0] == "error"
        print_line(*finding)
    return has_error


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


def open_errno(path: str) -> int:
    """Return the errno of opening a device's file; 0 where it opens."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def has_library(name: str) -> bool:
    """Return whether the loader finds a library here."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def find_nccl() -> NcclLibrary | None:
    """Return the NCCL that `import torch` or the loader loads: one that is preloaded comes first."""
    preloaded = [line.split()[-1] for line in read_file("/proc/self/maps").splitlines() if "/libnccl.so" in line]
    # This process ignores PYTHONPATH, and the job's does not.
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder] + sys.path
    for path in [*preloaded[:1], *(folder + "/nvidia/nccl/lib/libnccl.so.2" for folder in folders), "libnccl.so.2"]:
        number = ctypes.c_int()
        try:
            ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
        except (OSError, AttributeError):
            continue
        major, minor_and_patch = divmod(number.value, 10000 if number.value >= 10000 else 1000)
        return NcclLibrary(path, (major, minor_and_patch // 100, minor_and_patch % 100))
    return None


def run_program(*command: str) -> str:
    """Return what a program printed; "" where it is not here, fails, or has not ended in PROGRAM_SECONDS."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PROGRAM_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.decode("utf-8", "replace")
