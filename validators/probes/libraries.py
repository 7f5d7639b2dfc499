"""NCCL, its plugins, libfabric and the verbs libraries: what each is, needs, offers and looks for."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from typing import Any, Mapping

from validators.probes import elf, loader, tools

NCCL = re.compile(r"libnccl\.so(\.\d+)*")
PLUGIN = re.compile(r"libnc(?:cl|com)-(?:net|tuner|ofi|env)[\w.-]*\.so(\.\d+)*|libnccl-net\.so")
LOOKED_FOR = re.compile(
    rb"nccl(?:Net|Tuner|Profiler|Gin|Rma)Plugin_v\d+(?=\0)"
    rb"|libnccl-(?:net|tuner)(?:\.so)?(?=\0)"
    rb"|NCCL version \d[\w.]*\+[\w.]+"
)
ABIS = ("ncclNetPlugin_v", "ncclTunerPlugin_v", "ncclGinPlugin_v", "ncclRmaPlugin_v")
EXPORTED = re.compile(rb"nccl(?:Net|Tuner|Gin|Rma)Plugin_v\d+(?=\0)")
FABRIC = re.compile(r"lib(?:fabric|efa|ibverbs)\.so(\.\d+)*")
HEADER = re.compile(r"nccl\.h")
HEADER_KEPT = 1 << 20  # characters: a nccl.h has some 30,000
HEADER_VERSION = re.compile(r"^#define NCCL_(MAJOR|MINOR|PATCH)\s+(\d+)", re.MULTILINE)
# The suffix of its providers, the folder that it opens them in first, and the one with their announcements.
VERBS = re.compile(rb"(?:/[\w.+/-]{1,200}/lib%s)?-rdmav\d+\.so|/[\w.+/-]{1,200}/libibverbs\.d(?=\0)")
OFI_BANNER = re.compile(rb"aws-ofi-nccl \d[\w.]*")  # in the first line that the plugin logs
ASKED = ("libnccl.so.2", "libfabric.so.1", "libefa.so.1", "libibverbs.so.1", "libcuda.so.1", "libmlx5.so.1")
TORCH = ("libtorch_cuda.so", "libtorch_python.so", "libc10_cuda.so")


def fabric_libraries(files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """All of this module for the libraries among `files` (path -> about it, from the tree)."""
    nccls = real_files(files, NCCL)
    asked_by = nccls[0] if nccls else None
    named = [os.path.basename(p) for p in real_files(files, PLUGIN) + links(files, PLUGIN)]
    resolved = {name: loader.resolved(name) for name in ASKED}
    resolved.update({name: loader.resolved(name, asked_by) for name in plugin_names(named, os.environ)})
    ours = [r["file"] for n, r in resolved.items() if r["file"] and n != "libcuda.so.1"]
    plugins = real_files(files, PLUGIN)
    tools_found = [path for path in map(tools.found, ("fi_info", "ibv_devinfo")) if path]
    closed = dict.fromkeys(ours + real_files(files, FABRIC) + nccls + plugins + torch_libraries() + tools_found)
    return {
        "nccl": {path: about_nccl(path) for path in nccls},
        "plugins": {path: about_plugin(path) for path in plugins},
        "headers": headers(real_files(files, HEADER)),
        "resolved": resolved,
        "closures": {path: loader.closure(path) for path in closed},
        "verbs_looks_for": verbs_looks_for(files),
        "method": "the image's loader",
    }


def real_files(files: dict[str, dict[str, Any]], name: re.Pattern[str]) -> list[str]:
    """The regular files (not links) among `files` whose name matches."""
    return sorted(p for p, about in files.items() if not about["target"] and name.fullmatch(os.path.basename(p)))


def links(files: dict[str, dict[str, Any]], name: re.Pattern[str]) -> list[str]:
    """The links among `files` whose name matches."""
    return sorted(p for p, about in files.items() if about["target"] and name.fullmatch(os.path.basename(p)))


def plugin_names(present: list[str], environment: Mapping[str, str]) -> list[str]:
    """The file names to ask the loader for: NCCL's own, those its environment variables ask for, those `present`."""
    names = ["libnccl-net.so"]
    for variable, template in (("NCCL_NET_PLUGIN", "libnccl-net-%s.so"), ("NCCL_TUNER_PLUGIN", "libnccl-tuner-%s.so")):
        for word in filter(None, environment.get(variable, "").split(",")):
            names += [word, template % word]
    return list(dict.fromkeys(names + present))


def about_nccl(path: str) -> dict[str, Any]:
    """The version in the library's banner, the plugin symbols (ABI numbers by kind) and file names it looks for."""
    try:
        found = elf.words(path, LOOKED_FOR)
        about = elf.library(path)
    except (OSError, elf.NotElf) as error:
        return {"error": str(error)}
    banners = [w.split()[-1] for w in found if w.startswith("NCCL version ")]
    # Newer ones keep the name without its ending, and put "-<word>" and ".so" behind it.
    names = {w if w.endswith(".so") else w + ".so" for w in found if w.startswith("libnccl-")}
    return {
        "error": "",
        "banner": banners[0] if banners else "",
        "looks_for": {kind: elf.numbers(found, kind) for kind in ABIS if elf.numbers(found, kind)},
        "file_names": sorted(names),
        "runpath": about["rpath"] + about["runpath"],
    }


def about_plugin(path: str) -> dict[str, Any]:
    """The version of an aws-ofi-nccl ("" for another plugin), the ABI numbers exported by kind, and what it needs."""
    try:
        about = elf.library(path)
        names = elf.exported(path, EXPORTED)
        banners = elf.words(path, OFI_BANNER)
    except (OSError, elf.NotElf) as error:
        return {"error": str(error)}
    return {
        "error": "",
        "version": banners[0].split()[-1] if banners else "",
        "exports": {kind: elf.numbers(names, kind) for kind in ABIS if elf.numbers(names, kind)},
        "needed": about["needed"],
    }


def headers(paths: list[str]) -> dict[str, str]:
    """The versions of NCCL's own headers by path; torch has a nccl.h of another kind."""
    versions = {path: header_version(path) for path in paths}
    return {path: version for path, version in versions.items() if version}


def header_version(path: str) -> str:
    """The version that a nccl.h declares; "" where it declares none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            parts = dict(HEADER_VERSION.findall(file.read(HEADER_KEPT)))
    except OSError:
        return ""
    return ".".join(parts[part] for part in ("MAJOR", "MINOR", "PATCH")) if len(parts) == 3 else ""


def verbs_looks_for(files: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """What each libibverbs looks for, by path: "-rdmav34.so", "<folder>/lib%s-rdmav34.so", "/etc/libibverbs.d"."""
    found = {}
    for path in real_files(files, re.compile(r"libibverbs\.so(\.[\d.]+)*")):
        try:
            found[path] = elf.words(path, VERBS)
        except (OSError, ValueError):
            found[path] = []
    return found


def torch_libraries() -> list[str]:
    """The shared libraries of the torch that this Python would import, found without importing it."""
    spec: Any | None = importlib.util.find_spec("torch") if "torch" not in sys.modules else None
    folders = list(spec.submodule_search_locations or []) if spec else []
    paths = [os.path.join(folder, "lib", name) for folder in folders for name in TORCH]
    return [path for path in paths if os.path.exists(path)]
