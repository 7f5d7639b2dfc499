"""What opens a network beside NCCL finds its libraries, and the right ones."""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import pytest

from rdma_images.chain.verbs import lib_folder
from rdma_images.facts.efa_installer import NAME as EFA_INSTALLER
from rdma_images.inspection.inspection import (
    NO_VERSION,
    Inspection,
    base_name,
    explain_refusal,
    missing_in,
    resolve_links,
)
from rdma_images.inspection.measurements import Closure, Files, Libraries, MeasuredPackages
from rdma_images.validate.probes.tree import IMPORTED
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.broken_files import broken
from validators.support.in_use import closure, describe_lack, missing_for_torch, without_alternatives
from validators.support.transports import NVSHMEM_UCX, PACKAGES_PATH, transports

OPEN_SOURCE = (
    "ai-dynamo/nixl src/core/nixl_plugin_manager.cpp and openucx/ucx src/ucs/sys/module.c: dlopen, and on without it"
)
COPY_SOURCE = (
    "ai-dynamo/dynamo, issue 6671, and ai-dynamo/nixl, issue 1668 (two UCX); ld.so(8): LD_LIBRARY_PATH comes before a "
    "library's run path"
)
BACKEND_SOURCE = (
    "ai-dynamo/dynamo, issue 4185, and ai-dynamo/nixl, issue 909: UCX over EFA emulates what libfabric does; "
    "ai-dynamo/nixl, pull request 1567: UCX aborts where a wheel has its modules three times, and no links"
)
NIXL_LIBFABRIC = "libplugin_LIBFABRIC"  # NIXL's, which its wheels bring, whatever the network
# Imported by cupy, which works on one GPU without it.
CUPY_NCCL = re.compile(r".*-packages/cupy_backends/cuda/libs/nccl\.[\w.-]*so")
FABRIC_LIBRARIES = ("libfabric.so.1", "libefa.so.1", "libibverbs.so.1")
# For UCX's module that lets GPUs post to a ConnectX, in wheels that bring no DOCA.
DOCA_LIBRARIES = ("libflexio", "libdoca")
UCX_MODULE = re.compile(r"/ucx/libuct_\w+\.so[\d.]*$")
UNDEFINED_SYMBOL = re.compile(r"undefined symbol: (\w+)")
# Symbols of GDRCopy and torch, whose names are not in them, and of device code that was not linked in.
FOREIGN_SYMBOL = re.compile(r"gdr_|_ZNK?(?:3c10|2at|5torch)|__cudaRegisterLinkedBinary_")
FRAMEWORK_LIBRARY = re.compile(r"lib(?:torch|c10|tensorflow|mxnet)")  # which is loaded before a module
LIBRARY = re.compile(r"lib([a-z]{3,})[-\w]*\.so")
CXX_LIBRARY = "libstdc++.so.6"
NAMESPACE = re.compile(r"_ZNK?(\d+)([a-z]\w+)")
NVSHMEM_HOST = re.compile(r"libnvshmem_host\.so\.\d+")
NVSHMEM_FILE = re.compile(r"libnvshmem_host\.so\.(\d+\.\d+\.\d+)")
NVSHMEM_WHEEL = re.compile(r"nvidia-nvshmem-cu\d+")
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
UCX_CUDA_FIX = (
    "copy UCX's whole lib/ucx, or configure UCX with --with-cuda, or install a wheel of NIXL, which brings its own"
)
UCX_LINK_FIX = "install NIXL 1.4.0 or later, or make them links to the one with the longest name"
ONE_UCX_FIX = "build NIXL with the UCX that torch takes, or keep that away from torch: two in a process do not work"
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
            for words in loader_refusals(closure(libraries, path), path)
            if words not in elsewhere and not _is_of_a_stand_in(inspection, words)
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


@pytest.mark.validator("transports.load", source=OPEN_SOURCE, severity="warning")
def test_load(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """What opens a network beside NCCL, and Python's modules for NCCL and MPI, find all that they need."""
    paths = transports(inspection, files) or pytest.skip("nothing but NCCL opens a network")
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


@pytest.mark.validator("transports.own", source=COPY_SOURCE, severity="warning")
def test_own(
    inspection: Inspection, files: Files, libraries: Libraries, packages: MeasuredPackages, require: Requirement
) -> None:
    """What opens a network beside NCCL gets the libraries that it came with, the wheel's NVSHMEM, and torch's UCX."""
    transport_paths = transports(inspection, files) or pytest.skip("nothing but NCCL opens a network")
    wheel = next((f"{name} {version}" for name, version in packages.installed if NVSHMEM_WHEEL.fullmatch(name)), "")
    library_path_folders = [
        f.rstrip("/") for f in inspection.subject.environment.get("LD_LIBRARY_PATH", "").split(":") if f
    ]
    by_path: dict[str, str] = {}
    for path in transport_paths:
        home = f"{PurePosixPath(path).parent.parent}/"
        for name, file in closure(libraries, path).libraries.items():
            bundled = [p for p in files.libraries if base_name(p) == name and p.startswith(home)]
            is_from_path = lib_folder(file) in map(lib_folder, (f"{folder}/x" for folder in library_path_folders))
            is_shared = bool(inspection.expected.fabric) and name in FABRIC_LIBRARIES  # see transports.fabric
            if (
                is_from_path
                and not is_shared
                and bundled
                and not any(file in (p, resolve_links(files, p)) for p in bundled)
            ):
                by_path[f"{path} takes {file} for {name}, and not its own {bundled[0]}"] = lib_folder(file)
            if wheel and NVSHMEM_HOST.fullmatch(name) and PACKAGES_PATH not in file:
                by_path[f"{_stem(path)} takes {file}, and not the NVSHMEM of {wheel}: releases do not mix"] = (
                    lib_folder(file)
                )
            if wheel and NVSHMEM_HOST.fullmatch(name) and PACKAGES_PATH in file:
                for foreign in foreign_nvshmem(files, wheel.split()[1]):
                    by_path[f"{_stem(path)} takes {wheel}, and {foreign} is another: ranks never meet"] = lib_folder(
                        foreign
                    )
    folders = ", ".join(dict.fromkeys(by_path.values()))
    copies_fix = (
        f"take {folders} out of LD_LIBRARY_PATH, or remove the other copy: of two releases of NVSHMEM the host's "
    )
    conflicts = conflicting_ucx(libraries, transport_paths, inspection.expected.fabric)
    fixes = [
        *([f"{copies_fix}and the device's side disagree"] if by_path else []),
        *([ONE_UCX_FIX] if conflicts else []),
    ]
    require(
        not by_path and not conflicts,
        expected="the libraries that each brings, and one UCX in a process",
        actual="; ".join([*by_path, *conflicts]) or "they do",
        fix="; ".join(fixes),
    )


def _stem(path: str) -> str:
    """Return a library's name without what follows its first dot."""
    return base_name(path).partition(".")[0]


def _unmangled(path: str) -> str:
    """Return a library's name without auditwheel's digits: libuct of libuct-0b9a4c55.so.0."""
    return _stem(path).partition("-")[0]


def foreign_nvshmem(files: Files, version: str) -> list[str]:
    """Return the files of NVSHMEM's host library that are of another version."""
    matches = {path: NVSHMEM_FILE.fullmatch(base_name(path)) for path in files.libraries if PACKAGES_PATH not in path}
    return [path for path, match in matches.items() if match and match.group(1) != version]


def conflicting_ucx(libraries: Libraries, transport_paths: Iterable[str], fabric: str | None) -> list[str]:
    """Return which of the transports take another UCX than torch, or than NVSHMEM in an image for neither fabric.

    They are opened in one process. Over a fabric NVSHMEM has another transport, see facts/packages/nvshmem.yaml.
    """
    paths_by_user = {"torch": [path for path in libraries.closures if "/torch/lib/" in path]}
    if fabric is None:
        paths_by_user[NVSHMEM_UCX] = [path for path in libraries.closures if base_name(path).startswith(NVSHMEM_UCX)]
    lines = []
    for path in sorted(transport_paths):
        paths = ucx_files(libraries, [path])
        for user, files in paths_by_user.items():
            if paths and (foreign := ucx_files(libraries, files) - paths):
                lines.append(
                    f"{path} takes {', '.join(sorted(paths))}, and {user} another UCX, {', '.join(sorted(foreign))}: "
                    "they can hang"
                )
    return lines


def ucx_files(libraries: Libraries, paths: Iterable[str]) -> set[str]:
    """Return the files of UCX that `paths` pull in."""
    files = [file for path in paths for file in closure(libraries, path).libraries.values()]
    return {file for file in files if base_name(file).startswith("libucp")}


def repeated_modules(files: Files) -> list[list[str]]:
    """Return the UCX modules that a wheel has under several names, those for verbs first.

    Links do not count.
    """
    by_name: dict[str, list[str]] = {}
    for path, file in files.libraries.items():
        if PACKAGES_PATH in path and UCX_MODULE.search(path) and not file.target:
            by_name.setdefault(path.partition(".so")[0], []).append(path)
    repeated = [sorted(paths) for paths in by_name.values() if len(paths) > 1]
    return sorted(repeated, key=lambda paths: "libuct_ib.so" not in paths[0])


def without_verbs(files: Files) -> str:
    """Return the first UCX whose folder of modules has none for verbs; "" where each has it."""
    folders = {path.rpartition("/")[0] for path in files.libraries if _unmangled(path) == "libuct_ib"}
    ucx = sorted(path for path in files.libraries if _unmangled(path) == "libuct")
    return next((path for path in ucx if f"{path.rpartition('/')[0]}/ucx" not in folders), "")


def nixl_without_cuda(files: Files, libraries: Libraries) -> str:
    """Return the UCX that NIXL takes and that has no module for CUDA; "" where it has one."""
    plugins = [path for path in libraries.closures if base_name(path).startswith("libplugin_UCX")]
    homes = {path.rpartition("/")[0] for path in files.libraries if _unmangled(path) == "libuct_cuda"}
    used = sorted(ucx_files(libraries, plugins))
    return next((path for path in used if not homes & {f"{lib_folder(path)}/ucx", lib_folder(path)}), "")


def has_backends(inspection: Inspection) -> bool:
    """Return whether an image has a NIXL or UCX that reaches a fabric, or may have one."""
    tree = inspection.measured.tree
    return tree is None or any((*_backends(inspection, tree.files), nixl_without_cuda(tree.files, tree.libraries)))


def _backends(inspection: Inspection, files: Files) -> tuple[bool, bool]:
    """Return whether NIXL is to reach EFA, and whether UCX is to reach a fabric."""
    fabric, names = inspection.expected.fabric, {_unmangled(path) for path in files.libraries}
    nixl = "libplugin_UCX" in names and (fabric == "efa" or "libuct_ib_efa" in names)
    return nixl, "libuct" in names and (fabric is not None or "libibverbs" in names)


@pytest.mark.validator("transports.backends", source=BACKEND_SOURCE, severity="warning", when=has_backends)
def test_backends(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """Each UCX has its modules once, with the one for verbs beside libibverbs, and NIXL CUDA, and LIBFABRIC for EFA."""
    nixl, ucx = _backends(inspection, files)
    without_cuda = nixl_without_cuda(files, libraries)
    faults = {}
    if without_cuda:
        faults[f"NIXL takes the UCX at {without_cuda}, which has no libuct_cuda.so: it moves no GPU memory"] = (
            UCX_CUDA_FIX
        )
    if ucx and (path := without_verbs(files)):
        faults[f"UCX at {path} has no libuct_ib.so beside it, and takes TCP instead of InfiniBand, EFA or eRDMA"] = (
            UCX_VERBS_FIX
        )
    if ucx and (repeated := repeated_modules(files)):
        first, *others = repeated[0]
        more = f", and so are {len(repeated) - 1} other modules" if len(repeated) > 1 else ""
        problem = f"{first} and {', '.join(map(base_name, others))} are copies and no links{more}: UCX can load two"
        faults[problem] = UCX_LINK_FIX
    if nixl and not any(_unmangled(path) == NIXL_LIBFABRIC for path in files.libraries):
        faults["NIXL has no backend LIBFABRIC, and over EFA UCX emulates it, many times slower"] = NIXL_FIX
    require(
        not faults,
        expected="libuct_ib.so of UCX, and libplugin_LIBFABRIC.so beside libplugin_UCX.so of NIXL",
        actual="; ".join(faults) or "they are there",
        fix="; ".join(faults.values()),
    )
