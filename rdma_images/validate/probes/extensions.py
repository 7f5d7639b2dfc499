"""Extension modules that were compiled against torch: each is loaded beside it, with all its symbols bound."""

from __future__ import annotations

import ast
import ctypes
import json
import mmap
import os
import re
import sys
from typing import Iterator, Sequence

from rdma_images.validate.probes import elf

TORCH_LIBRARY = re.compile(r"lib(?:torch|c10)[\w-]*\.so")
PASSED_OVER = ("torch", "functorch", "nvidia", "triton")  # folders of site-packages whose libraries torch loads itself
MISSING_LIBRARY = re.compile(r"(\S+): cannot open shared object file")
UNDEFINED = re.compile(r"undefined symbol: (\w+)")
DRIVER_MISSING = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.1: cannot open")  # which only a host with GPUs has
GPU = "/dev/nvidiactl"
MAX_SOURCE = 1 << 20  # bytes of a package's __init__.py
MAX_EXTENSIONS = 500
MAX_FAILED = 10  # modules for which libraries are searched: where all fail, torch is the cause
MAX_OTHERS = 20  # libraries that a module asks for and that are not loaded by torch


def loaded_extensions() -> dict[str, str]:
    """Return why extension modules cannot be loaded here, by path; "" where they can.

    One is no fault where only the driver is missing. torch must be imported before.
    A process of its own loads them, and a new one the rest where a module ends it. That is a fault on a machine with a
    GPU alone: a module's code runs after all its symbols are bound, and may ask for one, as Mooncake's. A module that
    lacks a symbol is loaded after the library that has it; one that names a missing library is not, as the loader
    finds none for it either.
    """
    faults: dict[str, str] = {}
    paths = list(extensions())[:MAX_EXTENSIONS]
    while paths:
        faults.update(_loaded(paths))
        paths = [path for path in paths if path not in faults]
    lacking = [path for path, fault in faults.items() if UNDEFINED.search(fault)]
    faults.update((path, _after_others(path, faults[path])) for path in lacking[:MAX_FAILED])
    return faults


def is_optional(path: str) -> bool:
    """Return whether a package opens a library itself and goes on where that fails.

    torchao does, with torch.ops.load_library in a `try`. What Python imports has a function for that, and no package
    is imported to find out: torchao's import takes ten times as long as torch's.
    """
    try:
        if elf.exported(path, re.compile(rb"PyInit_")):
            return False
        folder, _, below = path.rpartition("-packages/")
        with open(f"{folder}-packages/{below.partition('/')[0]}/__init__.py", "rb") as file:
            attempts = [node for node in ast.walk(ast.parse(file.read(MAX_SOURCE))) if isinstance(node, ast.Try)]
    except (elf.NotElf, OSError, ValueError, SyntaxError):
        return False
    inside = (node for attempt in attempts for statement in attempt.body for node in ast.walk(statement))
    return any(isinstance(node, ast.Attribute) and node.attr == "load_library" for node in inside)


def _after_others(path: str, fault: str) -> str:
    """Return the fault of a module after the libraries of site-packages that it asks for.

    Its package loads them before. `fault` is why it cannot be loaded without them.
    """
    libraries: list[str] = []
    while fault and len(libraries) < MAX_OTHERS:
        library = _missing_library(fault, path)
        if library is None or library in libraries:
            break
        libraries.insert(0, library)
        ((_, fault),) = _loaded([path], libraries)
    return fault


def _missing_library(fault: str, path: str) -> str | None:
    """Return the library that a fault asks for, by its name or a symbol of it.

    Returns:
        None where site-packages have none.
    """
    name, symbol = MISSING_LIBRARY.match(fault), UNDEFINED.search(fault)
    if name:
        return next((candidate for candidate in _libraries(()) if os.path.basename(candidate) == name[1]), None)
    if symbol:
        return next(
            (candidate for candidate in _libraries() if candidate != path and _exports(candidate, symbol[1])), None
        )
    return None


def _loaded(paths: list[str], after: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the modules that a new process loads, and their faults.

    The last is the one that ended the process, if any. The process loads the libraries `after` first, whose symbols
    then are there for all.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        load_fault = next(filter(None, (_fault(path, os.RTLD_LAZY | os.RTLD_GLOBAL) for path in after)), "")
        for path in paths:
            os.write(writer, json.dumps([path, load_fault or _fault(path)]).encode() + b"\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        answers = [(path, "" if DRIVER_MISSING.search(fault) else fault) for path, fault in map(json.loads, lines)]
    os.waitpid(child, 0)
    if len(answers) < len(paths):
        ended = "the process ended while it was loaded" if os.path.exists(GPU) else ""
        answers.append((paths[len(answers)], ended))
    return answers


def extensions() -> Iterator[str]:
    """Yield the shared libraries of site-packages that need torch's, without torch's own."""
    return filter(_needs_torch, _libraries())


def _libraries(passed_over: Sequence[str] = PASSED_OVER) -> Iterator[str]:
    """Yield the shared libraries of site-packages, but those `passed_over`."""
    for folder in dict.fromkeys(os.path.realpath(path) for path in sys.path if path.endswith("-packages")):
        for parent, folders, names in os.walk(folder):
            if parent == folder:
                folders[:] = [name for name in folders if name not in passed_over]
            for name in sorted(names):
                if re.search(r"\.so(?:\.[\d.]+)?$", name):
                    yield os.path.join(parent, name)


def _needs_torch(path: str) -> bool:
    try:
        return any(TORCH_LIBRARY.fullmatch(name) for name in elf.library(path)["needed"])
    except (elf.NotElf, OSError):
        return False


def _exports(path: str, symbol: str) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(symbol.encode()) < 0:  # far quicker than to read all its symbols
                return False
        return symbol in elf.exported(path, re.compile(re.escape(symbol.encode()) + rb"(?=\0)"))
    except (elf.NotElf, OSError, ValueError):
        return False


def _fault(path: str, mode: int = os.RTLD_NOW | os.RTLD_LOCAL) -> str:
    """Return why the loader does not load a library; "" where it does."""
    try:
        ctypes.CDLL(path, mode=mode)
    except OSError as error:
        return str(error)[:500]
    return ""
