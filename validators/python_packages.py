"""Faults of the GPU stack's Python packages: modules that cannot be loaded, and builds for another CUDA."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from packaging.utils import canonicalize_name

from rdma_images.chain.verbs import lib_folder
from rdma_images.inspection.inspection import Inspection, base_name, missing_in
from rdma_images.inspection.measurements import Closure, Files, Libraries, MeasuredPackages
from rdma_images.validate.probes.tree import EXTENSION, MODULE
from validators.in_use import closure, describe_lack, essential_missing, explain_module, without_alternatives
from validators.requirements import unmet_requirements

# For UCX's module that lets GPUs post to a ConnectX, in wheels that bring no DOCA.
DOCA_LIBRARIES = ("libflexio", "libdoca")
PACKAGES_PATH = "-packages/"  # in the path of what pip or apt has installed for Python
UCX_MODULE = re.compile(r"/ucx/libuct_\w+\.so[\d.]*$")
UNDEFINED_SYMBOL = re.compile(r"undefined symbol: (\w+)")
# Symbols of GDRCopy and torch, whose names are not in them, and of device code that was not linked in.
FOREIGN_SYMBOL = re.compile(r"gdr_|_ZNK?(?:3c10|2at|5torch)|__cudaRegisterLinkedBinary_")
OTHER_FRAMEWORK_LIBRARY = re.compile(r"lib(?:tensorflow|mxnet)")
FRAMEWORK_LIBRARY = re.compile(r"lib(?:torch|c10|tensorflow|mxnet)")  # which is loaded before a module
LIBRARY = re.compile(r"lib([a-z]{3,})[-\w]*\.so")
CXX_LIBRARY = "libstdc++.so.6"
NAMESPACE = re.compile(r"_ZNK?(\d+)([a-z]\w+)")
TORCH_FAMILY = ("torchvision", "torchaudio", "torchcodec", "torchtext", "xformers")
CUDA_TAG = re.compile(r"\+cu(\d{2})(\d)\b")
CUDART = re.compile(r"libcudart\.so\.(\d+)")


class PackageFault(NamedTuple):
    """Why a package does not work beside others, as a sentence."""

    package: str
    sentence: str

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def module_faults(inspection: Inspection, files: Files, libraries: Libraries) -> dict[str, str]:
    """Return why modules of Python packages cannot be loaded, by path; "" for those that can.

    Those that torch.extensions has loaded are left out.
    """
    measured = inspection.measured.torch.extensions if inspection.measured.torch else {}
    module_paths = [path for path in files.libraries if MODULE.fullmatch(path) and not EXTENSION.fullmatch(path)]
    candidates = [
        path
        for path in module_paths
        if path in libraries.closures
        and path not in measured
        and not any(map(OTHER_FRAMEWORK_LIBRARY.match, missing_in(libraries, path)))
    ]
    torch = {
        name for path, closure_ in libraries.closures.items() if "/torch/lib/" in path for name in closure_.libraries
    }
    lacks = {path: _without_loaded(files, torch, path, lacking_in(files, libraries, path)) for path in candidates}
    essential_libraries = essential_missing(lacks)
    version = torch_version(inspection)
    faults = dict.fromkeys(candidates, "")
    for path in candidates:
        if missing := essential_libraries[path]:
            faults[path] = f"{path} cannot be loaded: {describe_lack(inspection, missing)}"
        elif refusals := loader_refusals(closure(libraries, path), path):
            faults[path] = explain_module(path, refusals[0], version)
    return without_alternatives(faults, version)


def torch_version(inspection: Inspection) -> str:
    """Return the version of the torch that is installed; "" for none."""
    return dict(inspection.measured.packages.installed).get("torch", "") if inspection.measured.packages else ""


def _without_loaded(files: Files, torch: set[str], path: str, missing: list[str]) -> list[str]:
    """Return those `missing` that neither torch has loaded nor Python's prefix has."""
    prefix = path.partition("/lib/python")[0]
    return [n for n in missing if n not in torch and f"{prefix}/lib/{n}" not in files.libraries]


def lacking_in(files: Files, libraries: Libraries, path: str) -> list[str]:
    """Return the missing libraries of `path`, without what its process has loaded before.

    For a wheel that is what Python has, and for a module of UCX what lies beside it: UCX opens the first by its path.
    """
    missing = [name for name in dict.fromkeys(missing_in(libraries, path)) if not name.startswith(DOCA_LIBRARIES)]
    if PACKAGES_PATH not in path:
        folder = lib_folder(path)
        return [n for n in missing if not (UCX_MODULE.search(path) and f"{folder}/{n}" in files.libraries)]
    bundled = {base_name(p) for p in files.libraries if PACKAGES_PATH in p or base_name(p).startswith("libpython")}
    return [name for name in missing if name not in bundled and not FRAMEWORK_LIBRARY.match(name)]


def loader_refusals(answer: Closure, path: str) -> list[str]:
    """Return the loader's words about a library that hold in every process.

    Symbols of what its process has loaded before are no fault. What the C++ library has is nobody else's, nor is what
    lies in the library's own namespace.
    """
    stems = [match.group(1) for name in answer.libraries if (match := LIBRARY.match(name))]
    cxx_symbol = re.compile(r"_ZNK?St|_ZSt|__cxa_" if CXX_LIBRARY in answer.libraries else "(?!)")
    symbols = {fault: UNDEFINED_SYMBOL.search(fault) for fault in answer.faults}
    return [
        fault
        for fault, match in symbols.items()
        if not match
        or FOREIGN_SYMBOL.match(match[1])
        or cxx_symbol.match(match[1])
        or _is_in_own_namespace(path, match[1])
        or any(stem in match[1] for stem in stems)
    ]


def _is_in_own_namespace(path: str, symbol: str) -> bool:
    """Return whether a symbol lies in a namespace of C++ that a library is called after."""
    match = NAMESPACE.match(symbol)
    name = match[2][: int(match[1])] if match else ""
    return len(name) > 3 and name in base_name(path)


def packages_for_another_cuda(
    inspection: Inspection, packages: MeasuredPackages, libraries: Libraries
) -> list[PackageFault]:
    """Return the packages of torch's family whose versions name another CUDA."""
    faults = []
    for wheels in packages.wheels.values():
        torch = wheels.get("torch", "")
        measured = inspection.measured.torch.cuda if inspection.measured.torch else ""
        cuda = _tagged_cuda(torch) or measured or _runtime_major(libraries)
        for name in TORCH_FAMILY if torch and cuda else ():
            other = _tagged_cuda(wheels.get(name, ""))
            if other and other.partition(".")[0] != cuda.partition(".")[0]:
                versions = f"{name} {wheels[name]} is for CUDA {other}, and torch {torch} for CUDA {cuda}"
                faults.append(PackageFault(name, f"{versions}: they do not work together"))
    return faults


def _tagged_cuda(version: str) -> str:
    """Return the CUDA in a version's local part, "12.9" of "2.9.1+cu129"; "" for none."""
    match = CUDA_TAG.search(version)
    return f"{match[1]}.{match[2]}" if match else ""


def _runtime_major(libraries: Libraries) -> str:
    """Return the major version of the CUDA runtime that torch needs; "" for none."""
    names = [
        name
        for path, answer in libraries.closures.items()
        if base_name(path).startswith("libtorch_cuda")
        for name in (*answer.libraries, *answer.missing)
    ]
    return next((match[1] for name in names if (match := CUDART.match(name))), "")


def packages_reported(inspection: Inspection) -> set[str]:
    """Return the packages that packages.requires names, for another torch, jax or CUDA."""
    packages, tree = inspection.measured.packages, inspection.measured.tree
    serious = [fault for fault in unmet_requirements(inspection) if fault.severity == "warning"]
    names = {fault.package for fault in serious if fault.concerns_framework}
    if packages and tree:
        names |= {fault.package for fault in packages_for_another_cuda(inspection, packages, tree.libraries)}
    return names


def without_reported(inspection: Inspection, faults: Mapping[str, str]) -> dict[str, str]:
    """Return `faults`, by path, without those of packages that another check names.

    That is packages.requires, or packages.imports with what hides another module.
    """
    reported = packages_reported(inspection) | hidden_packages(inspection)
    return {path: fault for path, fault in faults.items() if not any(is_part_of(path, name) for name in reported)}


def hidden_packages(inspection: Inspection) -> set[str]:
    """Return the packages that another module of a name keeps from being imported."""
    imports = inspection.measured.imports
    return {failure.package for failure in (imports.failed if imports else ()) if failure.shadow}


def is_part_of(path: str, package: str) -> bool:
    """Return whether a module belongs to a package, by its folder's or its file's name."""
    top = canonicalize_name(path.rpartition("-packages/")[2].partition("/")[0].partition(".")[0])
    return top == package or top.startswith(f"{package}-")
