"""What opens a network beside NCCL: NIXL, UCX, NVSHMEM, Mooncake, and what brings them to a fabric."""

import re
from pathlib import PurePosixPath

import pytest

from rdma_images.core.case import Case, file_of, missing_in, name_of
from rdma_images.core.measurements import Closure, Files, Libraries, Packages
from rdma_images.facts import packages as facts_packages
from rdma_images.facts import table as facts_table
from rdma_images.validate.probes.libraries import TRANSPORT
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
OF_FABRIC = ("libfabric.so.1", "libefa.so.1", "libibverbs.so.1")
UNDEFINED = re.compile(r"undefined symbol: (\w+)")
LIBRARY = re.compile(r"lib([a-z]{3,})[-\w]*\.so")
SHOWN = 4


def transports(case: Case, files: Files) -> list[str]:
    """The libraries that open the image's network by themselves."""
    mine = [p for p, about in files.libraries.items() if TRANSPORT.fullmatch(name_of(p)) and not about.target]
    return [p for p in mine if case.expected.fabric == "efa" or not name_of(p).startswith(NVSHMEM)]


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
    """What opens a network beside NCCL can be loaded, with all that it needs."""
    mine = transports(case, files) or pytest.skip("nothing but NCCL opens a network")
    elsewhere = told_elsewhere(case, libraries)
    lacks = {path: [n for n in dict.fromkeys(missing_in(libraries, path)) if n not in elsewhere] for path in mine}
    faults = {path: f"{path} lacks {', '.join(names)}" for path, names in lacks.items() if names}
    for path in mine:
        said = [words for words in refused(closure(libraries, path)) if words not in elsewhere]
        faults |= {path: f"{path}: {said[0]}"} if said and path not in faults else {}
        faults |= {path: reason.found} if (reason := broken(case, path)) else {}
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
def test_own(case: Case, files: Files, libraries: Libraries, require: Requirement) -> None:
    """What opens a network beside NCCL gets the libraries that it came with."""
    mine = transports(case, files) or pytest.skip("nothing but NCCL opens a network")
    path_of = [f.rstrip("/") for f in case.subject.environment.get("LD_LIBRARY_PATH", "").split(":") if f]
    found: dict[str, str] = {}
    for path in mine:
        home = f"{PurePosixPath(path).parent.parent}/"
        for name, file in closure(libraries, path).libraries.items():
            beside = [p for p in files.libraries if name_of(p) == name and p.startswith(home)]
            taken = folder_of(file) in map(folder_of, (f"{folder}/x" for folder in path_of))
            if taken and beside and not any(file in (p, file_of(files, p)) for p in beside):
                found[f"{path} takes {file} for {name}, and not {beside[0]}"] = folder_of(file)
    require(
        not found,
        expected="the libraries that each brings",
        found="; ".join(found) or "they do",
        fix=f"take {', '.join(dict.fromkeys(found.values()))} out of LD_LIBRARY_PATH, or remove the other copy",
    )


@pytest.mark.validator("transports.backends", source=BACKENDS, severity="warning")
def test_backends(case: Case, files: Files, require: Requirement) -> None:
    """NIXL has its LIBFABRIC backend in an image that reaches EFA."""
    names = {name_of(path).partition(".")[0].partition("-")[0] for path in files.libraries}
    if "libplugin_UCX" not in names or not (case.expected.fabric == "efa" or "libuct_ib_efa" in names):
        pytest.skip("the image has no NIXL, or nothing in it reaches EFA")
    require(
        "libplugin_LIBFABRIC" in names,
        expected="libplugin_LIBFABRIC.so beside libplugin_UCX.so",
        found="both" if "libplugin_LIBFABRIC" in names else "NIXL has its backend UCX, and no LIBFABRIC",
        fix="install the wheel nixl-cu12 or nixl-cu13, or build NIXL where libfabric's headers are (/opt/amazon/efa)",
    )


@pytest.mark.validator("packages.broken", source=KNOWN, severity="warning", fabric="any")
def test_packages(packages: Packages, fabric: str, require: Requirement) -> None:
    """No Python package is known to fail, or to go without the fabric, in the version that is installed."""
    known = facts_table.read("packages.yaml", facts_packages.Packages)
    every = [(name, version) for folder in packages.wheels.values() for name, version in folder.items()]
    rows = [(name, version, row) for name, version in every for row in known.faults if name in row.of]
    found = [(name, version, row) for name, version, row in rows if row.fabric == fabric and row.holds(version)]
    require(
        not found,
        expected="packages of which no such fault is known",
        found="; ".join(f"{name} {version}: {row.why} [{known.cite(row)}]" for name, version, row in found)
        or f"none is known of {len(every)} packages",
        fix="; ".join(dict.fromkeys(row.fix for _, _, row in found)),
    )
