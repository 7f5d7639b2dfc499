"""Extension modules that were compiled against torch: each is loaded beside it, with all its symbols bound."""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from typing import Iterator

from rdma_images.validate.probes import elf

OF_TORCH = re.compile(r"lib(?:torch|c10)[\w-]*\.so")
PASSED_OVER = ("torch", "nvidia", "triton")  # folders of site-packages whose libraries torch loads itself
OF_DRIVER = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.1: cannot open")  # which only a host with GPUs has
MOST = 500


def loaded_extensions() -> dict[str, str]:
    """Return why each extension module cannot be loaded in this process, by its path; "" for one that can.

    A process of its own loads them. A module that ends the process is reported, and a new one loads the rest. torch
    must be imported before.
    """
    faults: dict[str, str] = {}
    paths = list(extensions())[:MOST]
    while paths:
        faults.update(_loaded(paths))
        paths = [path for path in paths if path not in faults]
    return faults


def _loaded(paths: list[str]) -> list[tuple[str, str]]:
    """Return what became of the modules that a new process has loaded, up to the one that ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        for path in paths:
            os.write(writer, json.dumps([path, _fault(path)]).encode() + b"\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        answers = [(path, fault) for path, fault in map(json.loads, lines)]
    os.waitpid(child, 0)
    if len(answers) < len(paths):
        answers.append((paths[len(answers)], "the process ended while it was loaded"))
    return answers


def extensions() -> Iterator[str]:
    """Yield the shared libraries of site-packages that need torch's, without torch's own."""
    for folder in dict.fromkeys(os.path.realpath(path) for path in sys.path if path.endswith("-packages")):
        for parent, folders, names in os.walk(folder):
            if parent == folder:
                folders[:] = [name for name in folders if name not in PASSED_OVER]
            for name in sorted(names):
                path = os.path.join(parent, name)
                if re.search(r"\.so(?:\.[\d.]+)?$", name) and _needs_torch(path):
                    yield path


def _needs_torch(path: str) -> bool:
    try:
        return any(OF_TORCH.fullmatch(name) for name in elf.library(path)["needed"])
    except (elf.NotElf, OSError):
        return False


def _fault(path: str) -> str:
    """Return what the loader says of a library; "" where it is loaded, or only the driver is missing."""
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        return "" if OF_DRIVER.search(str(error)) else str(error)[:500]
    return ""
