"""What opens a network beside NCCL: NIXL, UCX, NVSHMEM, Mooncake, and what brings them to a fabric."""

import re
from pathlib import PurePosixPath

import pytest

from rdma_images.core.case import Case, file_of, missing_in, name_of
from rdma_images.core.measurements import Closure, Files, Libraries, Packages
from rdma_images.facts import packages as facts_packages
from rdma_images.facts import table as facts_table
from rdma_images.validate.probes.libraries import TRANSPORT
from rdma_images.validate.probes.tree import EXTENSION
from rdma_images.validate.pytest_plugin import Requirement
from validators.conditions import broken
from validators.in_use import closure, folder_of

KNOWN = "facts/packages.yaml, each row with its source"
OPENS = (
    "ai-dynamo/nixl src/core/nixl_plugin_manager.cpp and openucx/ucx src/ucs/sys/module.c: dlopen, and on without it"
)
OWN = "ai-dynamo/dynamo, issue 6671; ld.so(8): LD_LIBRARY_PATH comes before the run path of a library"
BACKENDS = "ai-dynamo/dynamo, issue 4185, and ai-dynamo/nixl, issue 909: UCX over EFA emulates what libfabric does"
NVSHMEM = "nvshmem_transport_libfabric"  # torch's wheels bring it, whatever the network
MELLANOX = "libuct_ib_mlx5"  # UCX's modules for hardware that is on neither fabric
WHEELS = "-packages/"  # in the path of what pip or apt has installed for Python
OF_FABRIC = ("libfabric.so.1", "libefa.so.1", "libibverbs.so.1")
UNDEFINED = re.compile(r"undefined symbol: (\w+)")
OF_PYTHON = re.compile(r"lib(?:torch|c10|python)")  # what imports a module has them
NVSHMEM_HOST = re.compile(r"libnvshmem_host\.so\.\d+")
NVSHMEM_WHEEL = re.compile(r"nvidia-nvshmem-cu\d+")
LIBRARY = re.compile(r"lib([a-z]{3,})[-\w]*\.so")
SHOWN = 4
BUILD_UCX = "configure UCX with --with-verbs and --with-efa where rdma-core's headers are, or install one that has both"
BUILD_NIXL = "install the wheel nixl-cu12 or nixl-cu13, or build NIXL where libfabric's headers are (/opt/amazon/efa)"


def transports(case: Case, files: Files) -> list[str]:
    """The libraries that open the image's network by themselves."""
    named = [p for p in files.libraries if TRANSPORT.fullmatch(name_of(p)) or EXTENSION.fullmatch(p)]
    mine = [path for path in named if not files.libraries[path].target]
    idle = (*(() if case.expected.fabric == "efa" else (NVSHMEM,)), *((MELLANOX,) if case.expected.fabric else ()))
    return [path for path in mine if not name_of(path).startswith(idle)]


def lacking_in(files: Files, libraries: Libraries, path: str) -> list[str]:
    """What `path` needs and nothing answers to; in a wheel without what Python has loaded before."""
    missing = list(dict.fromkeys(missing_in(libraries, path)))
    if WHEELS not in path:
        return missing
    brought = {name_of(p) for p in files.libraries if WHEELS in p}
    return [name for name in missing if name not in brought and not OF_PYTHON.match(name)]


def refused(answer: Closure) -> list[str]:
    """The loader's words, without symbols of what the process that opens the library has loaded before."""
    stems = [match.group(1) for name in answer.libraries if (match := LIBRARY.match(name))]
    symbols = {fault: UNDEFINED.search(fault) for fault in answer.faults}
    return [f for f, match in symbols.items() if not match or any(stem in match.group(1) for stem in stems)]


def told_elsewhere(case: Case, libraries: Libraries) -> set[str]:
    """What the fabric's own libraries lack, which the checks of the fabric tell: names, and the loader's words."""
    answers = {name: libraries.resolved[name].file for name in OF_FABRIC} if case.expected.fabric == "efa" else {}
    found = [file for file in answers.values() if file]
    lacks = {name for file in found for name in (*missing_in(libraries, file), *closure(libraries, file).faults)}
    return lacks | {name for name, file in answers.items() if not file}


@pytest.mark.validator("transports.load", source=OPENS, severity="warning")
def test_load(case: Case, files: Files, libraries: Libraries, require: Requirement) -> None:
    """What opens a network beside NCCL, and modules of Python that call NCCL, load with all that they need."""
    mine = transports(case, files) or pytest.skip("nothing but NCCL opens a network")
    elsewhere = told_elsewhere(case, libraries)
    lacks = {path: [n for n in lacking_in(files, libraries, path) if n not in elsewhere] for path in mine}
    faults = {path: f"{path} lacks {', '.join(names)}" for path, names in lacks.items() if names}
    for path in mine:
        said = [words for words in refused(closure(libraries, path)) if words not in elsewhere]
        faults |= {path: f"{path}: {said[0].removeprefix(f'{path}: ')}"} if said and path not in faults else {}
        faults |= {path: reason.found} if ".so" in path and (reason := broken(case, path)) else {}
    lacking = dict.fromkeys(name for names in lacks.values() for name in names)
    require(
        not faults,
        expected="no backend or module that is given up when it is opened",
        found="; ".join(list(faults.values())[:SHOWN]) or ", ".join(mine[:SHOWN]),
        fix=f"install what brings {', '.join(lacking)} (the EFA installer libfabric and libefa, GDRCopy libgdrapi)"
        if lacking
        else "install it from the release that its libraries are of",
    )


@pytest.mark.validator("transports.own", source=OWN, severity="warning")
def test_own(case: Case, files: Files, libraries: Libraries, packages: Packages, require: Requirement) -> None:
    """What opens a network beside NCCL gets the libraries that it came with, and the NVSHMEM of the wheel."""
    mine = transports(case, files) or pytest.skip("nothing but NCCL opens a network")
    every = [(name, version) for folder in packages.wheels.values() for name, version in folder.items()]
    wheel = next((f"{name} {version}" for name, version in every if NVSHMEM_WHEEL.fullmatch(name)), "")
    path_of = [f.rstrip("/") for f in case.subject.environment.get("LD_LIBRARY_PATH", "").split(":") if f]
    found: dict[str, str] = {}
    for path in mine:
        home = f"{PurePosixPath(path).parent.parent}/"
        for name, file in closure(libraries, path).libraries.items():
            beside = [p for p in files.libraries if name_of(p) == name and p.startswith(home)]
            taken = folder_of(file) in map(folder_of, (f"{folder}/x" for folder in path_of))
            if taken and beside and not any(file in (p, file_of(files, p)) for p in beside):
                found[f"{path} takes {file} for {name}, and not {beside[0]}"] = folder_of(file)
            if wheel and NVSHMEM_HOST.fullmatch(name) and "-packages/" not in file:
                found[f"{path} takes {file}, and the wheel {wheel} is installed"] = folder_of(file)
    require(
        not found,
        expected="the libraries that each brings",
        found="; ".join(found) or "they do",
        fix=f"take {', '.join(dict.fromkeys(found.values()))} out of LD_LIBRARY_PATH, or remove the other copy: of two "
        "releases of NVSHMEM the host's and the device's side disagree",
    )


@pytest.mark.validator("transports.backends", source=BACKENDS, severity="warning")
def test_backends(case: Case, files: Files, require: Requirement) -> None:
    """UCX has its module for verbs in an image for a fabric, and NIXL its LIBFABRIC backend in one that reaches EFA."""
    names = {name_of(path).partition(".")[0].partition("-")[0]: path for path in files.libraries}
    nixl = "libplugin_UCX" in names and (case.expected.fabric == "efa" or "libuct_ib_efa" in names)
    ucx = "libuct" in names and case.expected.fabric is not None
    if not nixl and not ucx:
        pytest.skip("the image has neither NIXL nor UCX, or nothing in it reaches a fabric")
    faults = {}
    if ucx and "libuct_ib" not in names:
        faults[f"UCX at {names['libuct']} has no libuct_ib.so, and takes TCP"] = BUILD_UCX
    if nixl and "libplugin_LIBFABRIC" not in names:
        faults["NIXL has its backend UCX, and no LIBFABRIC"] = BUILD_NIXL
    require(
        not faults,
        expected="libuct_ib.so of UCX, and libplugin_LIBFABRIC.so beside libplugin_UCX.so of NIXL",
        found="; ".join(faults) or "they are there",
        fix="; ".join(faults.values()),
    )


@pytest.mark.validator("packages.broken", source=KNOWN, severity="warning", fabric="any")
def test_packages(packages: Packages, libraries: Libraries, fabric: str, require: Requirement) -> None:
    """No Python package is known to fail, or to go without the fabric, in the version that is installed."""
    known = facts_table.read("packages.yaml", facts_packages.Packages)
    every = [(name, version) for folder in packages.wheels.values() for name, version in folder.items()]
    rows = [(name, version, row) for name, version in every for row in known.faults if name in row.of]
    rows = [one for one in rows if one[2].fabric == fabric and not _built_for_it(libraries, one[2])]
    found = [(name, version, row) for name, version, row in rows if row.holds(version)]
    require(
        not found,
        expected="packages of which no such fault is known",
        found="; ".join(f"{name} {version}: {row.why} [{known.cite(row)}]" for name, version, row in found)
        or f"none is known of {len(every)} packages",
        fix="; ".join(dict.fromkeys(row.fix for _, _, row in found)),
    )


def _built_for_it(libraries: Libraries, row: facts_packages.PackageFault) -> bool:
    """Whether the package's modules need the library that only a build without the fault needs."""
    mine = [one for path, one in libraries.closures.items() if row.modules and f"-packages/{row.modules}/" in path]
    return any(row.unless_needs in (*one.libraries, *one.missing) for one in mine)
