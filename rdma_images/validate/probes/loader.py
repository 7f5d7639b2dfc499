"""The dynamic loader's answer for a name, asked of the loader itself in a process of its own."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Mapping
from typing import Any

from rdma_images.validate.probes import conditions, elf, rootfs, tools

PRELOADED = "/etc/ld.so.preload"
MAX_PRELOADED_BYTES = 1 << 16
LOADER_SECONDS = 10  # seconds for one question to the loader
MAX_ANSWER_BYTES = 1 << 20  # bytes of its answer: torch's is some 10,000
FIND_PROGRAM = """
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
RTLD_NOW = 2  # as NCCL opens its plugins and libibverbs, src/os/linux.cc and src/misc/ibvsymbols.cc
LATE_ANSWER = "opening it took more than %d s" % LOADER_SECONDS
MAX_FAULTS = 20
UNDEFINED = re.compile(r"(?:undefined symbol: |Error relocating )")
MISSING = re.compile(r"cannot open shared object file|Error loading shared library")  # glibc's words, and musl's
# Messages after which the loader continues: about a library without versions, a weak one, or one from a variable; and
# about what a module of Python finds in the Python that imports it.
HARMLESS = re.compile(
    r"no version information available|weak version `|undefined symbol: _?Py|^ERROR: ld\.so: object .* from LD_PRELOAD"
)
LIBRARY_LINE = re.compile(r"\s*(?P<name>\S+)(?: => (?P<path>not found|\S+))?(?: \(0x[0-9a-f]+\))?$")


def preloads(root: rootfs.Root, environment: Mapping[str, str]) -> list[str]:
    """Return what the loader maps first: LD_PRELOAD, then PRELOADED, see ld.so(8)."""
    lines = (root.text(PRELOADED, MAX_PRELOADED_BYTES) or "").splitlines()
    words = re.split(r"[:\s]+", environment.get("LD_PRELOAD", ""))
    words += [word for line in lines for word in re.split(r"[:\s]+", line.partition("#")[0])]
    return list(dict.fromkeys(filter(None, words)))


def resolve_name(name: str, requiring_file: str | None = None) -> dict[str, Any]:
    """Return what dlopen(name) opens: {"path", "file" (links followed), "error"}.

    A file that it refuses has all three. `requiring_file` is the library that will ask: its own RPATH and RUNPATH are
    searched too. RPATH comes before LD_LIBRARY_PATH and RUNPATH after it, as ld.so(8) has it.
    """
    return _opened(search_name(name, requiring_file))


def search_name(name: str, requiring_file: str | None) -> str:
    """Return where dlopen() of a file's search paths has `name`; else `name` itself."""
    search_paths: dict[str, list[str]] = {"rpath": [], "runpath": []}
    if requiring_file and "/" not in name:
        try:
            headers = elf.library(requiring_file)
            search_paths = {
                key: [elf.expand(folder, requiring_file) for folder in headers[key]] for key in search_paths
            }
        except (OSError, elf.NotElf):
            pass
    rpath = [] if search_paths["runpath"] else search_paths["rpath"]
    library_path = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    for folder in rpath + library_path + search_paths["runpath"]:
        candidate = os.path.join(folder, name)
        if os.path.exists(candidate) and not is_skipped_file(candidate):
            return candidate
    return name


def is_skipped_file(path: str) -> bool:
    """Return whether the loader passes over the file at `path`, for another machine."""
    return (
        conditions.condition_kind(conditions.path_condition(rootfs.Root(), path, platform.machine()))
        in conditions.SKIPPED
    )


def _opened(name: str) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", "-c", FIND_PROGRAM, name, str(RTLD_NOW)]
    rc, out, err = tools.run_bounded(command, LOADER_SECONDS, tools.MAX_OUTPUT_BYTES)
    if rc is None:
        return {"path": "", "file": "", "error": LATE_ANSWER}
    path = out.decode("utf-8", "replace").strip()
    if rc == 0 and path:
        return {"path": path, "file": os.path.realpath(path), "error": ""}
    last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["ended with %d" % rc]
    path = _refused(name)
    return {
        "path": path,
        "file": os.path.realpath(path) if path else "",
        "error": last[0].replace("OSError: ", "")[:500],
    }


def _refused(name: str) -> str:
    """Return the path that the loader finds for `name` and refuses to open; "" for none.

    The library is preloaded into a program that the loader only lists: it is mapped before its symbols are looked up.
    """
    program = _program()
    if "/" in name:
        return name if os.path.exists(name) else ""
    if not program or "musl" in program:
        return ""
    asking = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": name}
    try:
        _, out, _ = tools.run_bounded(
            [program, os.path.realpath(sys.executable)], LOADER_SECONDS, MAX_ANSWER_BYTES, asking
        )
    except OSError:
        return ""
    matches = (LIBRARY_LINE.match(line) for line in out.decode("utf-8", "replace").splitlines())
    return next((m.group("path") for m in matches if m and m.group("name") == name and m.group("path")), "")


def _program() -> str | None:
    """Return the loader of this Python. None where it is static, or cannot be read."""
    try:
        return elf.interpreter(os.path.realpath(sys.executable))
    except (OSError, elf.NotElf, ValueError):
        return None


def closure(path: str, bound: bool = True) -> dict[str, Any]:
    """Return every library that the loader would map for `path`.

    The form is {"libraries": {name: file}, "missing", "faults", "error"}. `missing` are the names that nothing answers
    to; `faults` is why it would refuse what it found, in its words; `error` is why it could not be asked. `bound` is
    whether every symbol is looked up, which takes long for torch.
    """
    answer: dict[str, Any] = {"libraries": {}, "missing": [], "faults": [], "error": ""}
    program = _program()
    if not program:
        return {**answer, "error": "the image's python is static: it has no loader to ask"}
    musl = "musl" in program
    # As ldd -r asks; glibc's --list stops at the first name that nothing answers to.
    asking = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1", **({"LD_WARN": "1", "LD_BIND_NOW": "1"} if bound else {})}
    try:
        command = [program, *(["--list"] if musl else []), path]
        rc, out, err = tools.run_bounded(command, LOADER_SECONDS, MAX_ANSWER_BYTES, asking)
    except OSError as error:
        return {**answer, "error": str(error)}
    if rc is None:
        return {**answer, "faults": ["%s: %s" % (path, LATE_ANSWER)]}
    return library_closure(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def library_closure(out: str, err: str) -> dict[str, Any]:
    """Return the mapped and missing libraries and faults in the loader's two outputs."""
    libraries: dict[str, str] = {}
    missing = []
    for line in out.splitlines():
        match = LIBRARY_LINE.match(line)
        if not match:
            continue
        name, path = match.group("name"), match.group("path")
        if path == "not found":
            missing.append(name)
        elif path or name.startswith("/"):
            libraries[os.path.basename(name)] = os.path.realpath(path or name)
    complaints = [" ".join(line.split()) for line in err.splitlines() if line.strip()]
    # Without a library, its symbols are unknown.
    unexplained = [line for line in complaints if not (MISSING.search(line) or HARMLESS.search(line))]
    faults = [line[:500] for line in unexplained if not (missing and UNDEFINED.match(line))]
    return {"libraries": libraries, "missing": missing, "faults": faults[:MAX_FAULTS], "error": ""}


def nccl_version(path: str) -> int | None:
    """Return ncclGetVersion() of a library, encoded (22809); None where it has none."""
    try:
        number = ctypes.c_int(0)
        failed = ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if failed else number.value
