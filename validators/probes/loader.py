"""What the dynamic loader does with a name: asked of the loader itself, in a process of its own."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import Any

from validators.probes import elf, tools

LIMIT = 30  # seconds for one question to the loader
KEPT = 1 << 20  # bytes of its answer: torch's is some 10,000
FIND = """
import ctypes, sys
class Map(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
library = ctypes.CDLL(sys.argv[1], mode=int(sys.argv[2]))
found = ctypes.POINTER(Map)()
ask = ctypes.CDLL(None).dlinfo
ask.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
ask(library._handle, 2, ctypes.byref(found))
print(found.contents.name.decode())
"""
RTLD_LAZY = 1
LINE = re.compile(r"\s*(?P<name>\S+)(?: => (?P<path>not found|\S+))?(?: \(0x[0-9a-f]+\))?$")


def resolved(name: str, asked_by: str | None = None) -> dict[str, Any]:
    """Where dlopen(name) ends: {"path", "file" (links followed), "error"}.

    `asked_by` is the library that will ask: its own RPATH and RUNPATH are searched too. RPATH comes before
    LD_LIBRARY_PATH and RUNPATH after it, as ld.so(8) has it.
    """
    own: dict[str, list[str]] = {"rpath": [], "runpath": []}
    if asked_by and "/" not in name:
        try:
            about = elf.library(asked_by)
            own = {key: [elf.expand(folder, asked_by) for folder in about[key]] for key in own}
        except (OSError, elf.NotElf):
            pass
    before = [] if own["runpath"] else own["rpath"]
    environment = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    for folder in before + environment + own["runpath"]:
        candidate = os.path.join(folder, name)
        if os.path.exists(candidate):
            return _opened(candidate)
    return _opened(name)


def _opened(name: str) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", "-c", FIND, name, str(RTLD_LAZY)]
    rc, out, err = tools.bounded(command, LIMIT, tools.KEPT)
    if rc is None:
        return {"path": "", "file": "", "error": "opening it took more than %d s" % LIMIT}
    path = out.decode("utf-8", "replace").strip()
    if rc == 0 and path:
        return {"path": path, "file": os.path.realpath(path), "error": ""}
    last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["ended with %d" % rc]
    return {"path": "", "file": "", "error": last[0].replace("OSError: ", "")[:500]}


def closure(path: str) -> dict[str, Any]:
    """Every library the loader would map for `path`: {"libraries": {name: file}, "missing": [names], "error"}."""
    try:
        program = elf.interpreter(os.path.realpath(sys.executable))
    except (OSError, elf.NotElf, ValueError) as error:
        return {"libraries": {}, "missing": [], "error": str(error)}
    if not program:
        return {"libraries": {}, "missing": [], "error": "the image's python is static: it has no loader to ask"}
    try:
        # As ldd asks; with --list the loader stops at the first name that nothing answers to.
        asking = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}
        rc, out, err = tools.bounded([program, path], LIMIT, KEPT, asking)
    except OSError as error:
        return {"libraries": {}, "missing": [], "error": str(error)}
    if rc is None:
        return {"libraries": {}, "missing": [], "error": "the loader took more than %d s" % LIMIT}
    return _closure(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def _closure(out: str, err: str) -> dict[str, Any]:
    libraries: dict[str, str] = {}
    missing = []
    for line in out.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        name, path = match.group("name"), match.group("path")
        if path == "not found":
            missing.append(name)
        elif path or name.startswith("/"):
            libraries[os.path.basename(name)] = os.path.realpath(path or name)
    error = "" if libraries or missing else err.strip()[:500]
    return {"libraries": libraries, "missing": missing, "error": error}


def nccl_version(path: str) -> int | None:
    """ncclGetVersion() of the library at `path`, as NCCL encodes it (22809); None where it has none or refuses."""
    try:
        number = ctypes.c_int(0)
        failed = ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if failed else number.value
