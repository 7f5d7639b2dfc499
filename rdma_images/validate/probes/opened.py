"""The CUDA libraries that packages open by their names where they meet a GPU, as TensorFlow and CTranslate2 do."""

from __future__ import annotations

import ctypes
import glob
import json
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rdma_images.validate.probes import elf, loader

# TensorFlow's function for each library: tensorflow/tensorflow, tsl/platform/default/dso_loader.cc. It opens the
# library by the name and the run path that TensorFlow was built with, and returns an absl::Status with glibc's words.
OPENING_FUNCTION = re.compile(
    rb"_ZN\w*15CachedDsoLoader\d+Get(?:CudaRuntime|Cublas|Cufft|Cusolver|Cusparse|Cudnn)DsoHandleEv(?=\0)"
)
TENSORFLOW_LIBRARY = "libtensorflow_framework.so.2"
UNOPENED_MESSAGE = re.compile(rb"dynamic library '(lib[\w.-]+)'")
CUDA_NAME = re.compile(rb"lib(?:cudnn|cublas)\w*\.so\.\d+(?=\0)")
FAMILIES = (b"libcudnn", b"libcublas")
PASSED_OVER = re.compile(r"-packages/(?:torch|nvidia|tensorflow|triton)/")  # what is linked, or asked itself
MIN_FOUND = 2  # libraries of CUDA: with fewer, TensorFlow is there without GPUs
MAX_MESSAGE = 500  # bytes
MAX_SIZE = 1 << 30  # bytes of a library whose strings are read
OK_STATUSES = (0, 1)  # an absl::Status without an error, of two releases


def unopened(folders: Iterable[str], libraries: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the packages whose libraries open some of CUDA and do not find them.

    Args:
        folders: Those that Python imports from.
        libraries: The compiled files of packages, each with its package and version as "name version".

    Returns:
        For each its package, `file` and the `missing` names. Of a library that names several releases of one family,
        as a package that tries one after the other, all have to be missing.
    """
    folders = list(folders)
    present = {os.path.basename(path) for folder in folders for path in glob.glob(folder + "/nvidia/*/lib/*.so.*")}
    answer = []
    for path in (path for path in libraries if os.path.basename(path) == TENSORFLOW_LIBRARY):
        opened = open_by_tensorflow(path)
        if opened["missing"] and opened["found"] >= MIN_FOUND:
            answer.append({"package": libraries[path], "file": path, "missing": opened["missing"]})
    for path, names in named_libraries(path for path in libraries if not PASSED_OVER.search(path)):
        for family in FAMILIES:
            alternatives = [name for name in names if name.startswith(family.decode())]
            is_found = any(name in present or loader.resolved(name)["file"] for name in alternatives)
            if alternatives and not is_found and any(name.startswith(family.decode()) for name in present):
                answer.append({"package": libraries[path], "file": path, "missing": alternatives})
    return answer


def open_by_tensorflow(path: str) -> dict[str, Any]:
    """Return what TensorFlow's own functions open of CUDA.

    Args:
        path: Its library TENSORFLOW_LIBRARY.

    Returns:
        The names `missing`, and the number `found`.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            os.write(writer, json.dumps(_call_all(path)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"missing": [], "found": 0}


def _call_all(path: str) -> dict[str, Any]:
    """Call each of TensorFlow's functions, and return open_by_tensorflow's answer."""
    symbols, library = elf.exported(path, OPENING_FUNCTION), ctypes.CDLL(path)
    missing, found = [], 0
    for symbol in symbols:
        status = (ctypes.c_uint64 * 8)()
        function = library[symbol]
        function.restype = None
        function(ctypes.byref(status))
        if status[0] in OK_STATUSES:
            found += 1
            continue
        # The reference count and code of the status, then the beginning and length of its message.
        fields = ctypes.cast(status[0] & ~3, ctypes.POINTER(ctypes.c_uint64))
        match = UNOPENED_MESSAGE.search(ctypes.string_at(fields[1], min(fields[2], MAX_MESSAGE)))
        missing += [match.group(1).decode()] if match else []
    return {"missing": sorted(missing), "found": found}


def named_libraries(paths: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each library that names cuDNN or cuBLAS and does not link it, with the names."""
    for path in paths:
        try:
            names = elf.find_strings(path, CUDA_NAME) if _mentions(path) else []
            linked = {name.partition(".so")[0] for name in elf.library(path)["needed"]} if names else set()
        except (elf.NotElf, OSError, ValueError):
            continue
        opened = [name for name in names if name.partition(".so")[0] not in linked]
        if opened:
            yield path, opened


def _mentions(path: str) -> bool:
    """Return whether a file names one of FAMILIES; reading its sections takes far longer."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return len(data) < MAX_SIZE and any(data.find(name) >= 0 for name in FAMILIES)
