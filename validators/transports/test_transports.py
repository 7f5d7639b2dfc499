"""Libraries that open a network beside NCCL find the libraries that they need, and the right ones."""

import re
from collections.abc import Iterable, Mapping

from rdma_images.chain.verbs import lib_folder
from rdma_images.facts.fabric_software import EFA_INSTALLER
from rdma_images.inspection.inspection import (
    NO_VERSION,
    Inspection,
    base_name,
    explain_refusal,
    missing_in,
)
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.probes.tree import IMPORTED
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.broken_files import broken
from validators.support.in_use import closure, describe_lack, missing_for_torch, without_alternatives
from validators.support.transports import PACKAGES_PATH, transports

OPEN_SOURCE = (
    "ai-dynamo/nixl src/core/nixl_plugin_manager.cpp and openucx/ucx src/ucs/sys/module.c: dlopen, and on without it"
)
BACKEND_SOURCE = (
    "ai-dynamo/dynamo, issue 4185, and ai-dynamo/nixl, issue 909: UCX over EFA emulates what libfabric does"
)
NIXL_LIBFABRIC = "libplugin_LIBFABRIC"  # NIXL's, which its wheels bring, whatever the network
# Imported by cupy, which works on one GPU without it.
CUPY_NCCL = re.compile(r".*-packages/cupy_backends/cuda/libs/nccl\.[\w.-]*so")
FABRIC_LIBRARIES = ("libfabric.so.1", "libefa.so.1", "libibverbs.so.1")
# For UCX's module that lets GPUs post to a ConnectX, in wheels that bring no DOCA.
DOCA_LIBRARIES = ("libflexio", "libdoca")
UCX_MODULE = re.compile(r"/ucx/libuct_\w+\.so[\d.]*$")
FRAMEWORK_LIBRARY = re.compile(r"lib(?:torch|c10|tensorflow|mxnet)")  # which is loaded before a module
MAX_SHOWN = 4
PACKAGES_BY_LIBRARY = {
    "libfabric": "the EFA installer",
    "libefa": "the EFA installer",
    "libgdrapi": "GDRCopy",
    "libmpi.so.12": "MPICH",
    "libmpi": "Open MPI",
}
UCX_VERBS_FIX = (
    "configure UCX with --with-verbs and --with-efa where rdma-core's headers are, or install one that has both"
)
NIXL_FIX = "install the wheel nixl-cu12 or nixl-cu13, or build NIXL where libfabric's headers are (/opt/amazon/efa)"


def _bundled_by(names: Iterable[str]) -> str:
    """Return who brings those of the libraries that are known."""
    packaged = [
        (next((PACKAGES_BY_LIBRARY[start] for start in PACKAGES_BY_LIBRARY if name.startswith(start)), ""), name)
        for name in names
    ]
    packages = [f"{package} {name}" for package, name in packaged if package]
    return f" ({', '.join(packages)})" if packages else ""


def _refusal(path: str, error: str) -> str:
    """Return that a library is refused, in a sentence that names it and the file at fault."""
    sentence = explain_refusal(error.removeprefix(f"{path}: "))
    if sentence == error:
        return f"{path}: {error}"
    return sentence if sentence.startswith(path) else f"{base_name(path)}: {sentence}"


def torch_version(inspection: Inspection) -> str:
    """Return the version of the torch that is installed; "" for none."""
    return dict(inspection.measured.packages.installed).get("torch", "") if inspection.measured.packages else ""


def lacking_in(files: Files, libraries: Libraries, path: str) -> list[str]:
    """Return the missing libraries of `path`, without what its process has loaded before.

    For a wheel that is what Python has, and for a module of UCX what lies beside it: UCX opens the first by its path.
    """
    missing = [name for name in dict.fromkeys(missing_in(libraries, path)) if not name.startswith(DOCA_LIBRARIES)]
    if PACKAGES_PATH not in path:
        folder = lib_folder(path)
        return [n for n in missing if not (UCX_MODULE.search(path) and f"{folder}/{n}" in files.library_files)]
    bundled = {base_name(p) for p in files.library_files if PACKAGES_PATH in p or base_name(p).startswith("libpython")}
    return [name for name in missing if name not in bundled and not FRAMEWORK_LIBRARY.match(name)]


def fabric_faults(inspection: Inspection, libraries: Libraries) -> set[str]:
    """Return what the fabric's own libraries lack, which the checks of the fabric tell.

    Names, and the loader's words.
    """
    answers = (
        {name: libraries.resolved[name].file for name in FABRIC_LIBRARIES}
        if inspection.expected.fabric == "efa"
        else {}
    )
    paths = [file for file in answers.values() if file]
    lacks = {name for file in paths for name in (*missing_in(libraries, file), *closure(libraries, file).faults)}
    return lacks | {name for name, file in answers.items() if not file}


def transport_faults(
    inspection: Inspection, libraries: Libraries, lacks: Mapping[str, list[str]], elsewhere: set[str]
) -> dict[str, str]:
    """Return why libraries that open a network cannot be loaded, by path.

    Args:
        inspection: What was measured.
        libraries: Its libraries.
        lacks: By the path of each transport, the libraries that it needs and that are not there.
        elsewhere: What the checks of the fabric tell.
    """
    faults = {}
    for path, names in lacks.items():
        refusals = [
            words
            for words in closure(libraries, path).faults
            if "undefined symbol" not in words  # what its process has loaded before may have it
            and words not in elsewhere
            and not _is_of_a_stand_in(inspection, words)
        ]
        faults[path] = _refusal(path, refusals[0]) if refusals else ""
        if names:
            faults[path] = f"{path} cannot be loaded: {describe_lack(inspection, names)}"
        if ".so" in path and (broken_file := broken(inspection, path)):
            faults[path] = broken_file.actual
    # NIXL takes that of its wheels for torch's CUDA.
    needed = without_alternatives(faults, torch_version(inspection))
    return {path: fault for path, fault in needed.items() if fault}


def _is_of_a_stand_in(inspection: Inspection, words: str) -> bool:
    """Return whether a library of the fabric is refused that only stands in for the EFA installer's newer one."""
    match = NO_VERSION.search(words)
    return bool(match and inspection.stand_in_id(EFA_INSTALLER) and match["file"].startswith("/opt/amazon/efa/"))


@validator("transports.load", source=OPEN_SOURCE, severity="warning")
def test_load(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """Libraries that open a network beside NCCL, and Python's modules for NCCL and MPI, find all that they need."""
    paths = transports(inspection, files) or skip("nothing but NCCL opens a network")
    elsewhere = fabric_faults(inspection, libraries) | set(missing_for_torch(libraries))
    lacks = {path: [n for n in lacking_in(files, libraries, path) if n not in elsewhere] for path in paths}
    faults = transport_faults(inspection, libraries, lacks, elsewhere)
    lacking = dict.fromkeys(name for path, names in lacks.items() for name in names if path in faults)
    # What ends an import comes first.
    faults = dict(sorted(faults.items(), key=lambda fault: not IMPORTED.fullmatch(fault[0])))
    require(
        not faults,
        expected="no backend or module that is given up when it is opened",
        actual="; ".join(list(faults.values())[:MAX_SHOWN]) or ", ".join(paths[:MAX_SHOWN]),
        fix=f"install what brings {', '.join(lacking)}{_bundled_by(lacking)}"
        if lacking
        else "install it from the release that its libraries are of",
        severity="note" if all(_is_unused(inspection, libraries, path) for path in faults) else None,
    )


def _is_unused(inspection: Inspection, libraries: Libraries, path: str) -> bool:
    """Return whether a module is for a fabric or for several GPUs that the image is not for."""
    fabric = inspection.expected.fabric
    return (fabric != "efa" and NIXL_LIBFABRIC in path) or bool(
        not fabric and not libraries.nccl and CUPY_NCCL.fullmatch(path)
    )


def _stem(path: str) -> str:
    """Return a library's name without what follows its first dot."""
    return base_name(path).partition(".")[0]


def _unmangled(path: str) -> str:
    """Return a library's name without auditwheel's digits: libuct of libuct-0b9a4c55.so.0."""
    return _stem(path).partition("-")[0]


def without_verbs(files: Files) -> str:
    """Return the first UCX whose folder of modules has none for verbs; "" where each has it."""
    folders = {path.rpartition("/")[0] for path in files.library_files if _unmangled(path) == "libuct_ib"}
    ucx = sorted(path for path in files.library_files if _unmangled(path) == "libuct")
    return next((path for path in ucx if f"{path.rpartition('/')[0]}/ucx" not in folders), "")


def has_backends(inspection: Inspection) -> bool:
    """Return whether an image has a NIXL or UCX that reaches a fabric, or may have one."""
    tree = inspection.measured.tree
    return tree is None or any(_backends(inspection, tree.files))


def _backends(inspection: Inspection, files: Files) -> tuple[bool, bool]:
    """Return whether NIXL is to reach EFA, and whether UCX is to reach a fabric."""
    fabric, names = inspection.expected.fabric, {_unmangled(path) for path in files.library_files}
    nixl = "libplugin_UCX" in names and (fabric == "efa" or "libuct_ib_efa" in names)
    return nixl, "libuct" in names and (fabric is not None or "libibverbs" in names)


@validator("transports.backends", source=BACKEND_SOURCE, severity="warning", when=has_backends)
def test_backends(inspection: Inspection, files: Files, require: Requirement) -> None:
    """Each UCX has its module for verbs beside libibverbs, and NIXL the backend LIBFABRIC for EFA."""
    nixl, ucx = _backends(inspection, files)
    faults = {}
    if ucx and (path := without_verbs(files)):
        faults[f"UCX at {path} has no libuct_ib.so beside it, and takes TCP instead of InfiniBand, EFA or eRDMA"] = (
            UCX_VERBS_FIX
        )
    if nixl and not any(_unmangled(path) == NIXL_LIBFABRIC for path in files.library_files):
        faults["NIXL has no backend LIBFABRIC, and over EFA UCX emulates it, many times slower"] = NIXL_FIX
    require(
        not faults,
        expected="libuct_ib.so of UCX, and libplugin_LIBFABRIC.so beside libplugin_UCX.so of NIXL",
        actual="; ".join(faults) or "they are there",
        fix="; ".join(faults.values()),
    )
