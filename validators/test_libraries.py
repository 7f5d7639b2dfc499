"""Validators of a job's libraries: they are whole, and the loader takes them."""

import re

import pytest

from rdma_images.chain.verbs import VERBS, opened_providers
from rdma_images.inspection.inspection import (
    Inspection,
    base_name,
    describe_missing_libraries,
    explain_refusal,
    nccl_in_use,
    resolve_links,
)
from rdma_images.inspection.measurements import Files, Libraries, Settings
from rdma_images.validate.pytest_plugin import Requirement
from validators.conditions import BrokenFile, broken
from validators.in_use import LIBEFA, LIBFABRIC, LIBNCCL, broken_candidates, closure, roots, tried_plugin_names

MAPPING_SOURCE = (
    "glibc elf/dl-load.c: what is for another machine is passed over, what is no library at all ends the search"
)
BINDING_SOURCE = (
    "NVIDIA/nccl src/os/linux.cc and src/misc/ibvsymbols.cc: dlopen with RTLD_NOW, so every symbol must be there"
)
SEARCH_SOURCE = "glibc elf/dl-load.c: a name that cannot be opened in one folder is looked for in the next"
DRIVER_SOURCE = "rdma-core libibverbs/dynamic_driver.c: dlopen with RTLD_NOW, and a warning of what does not load"
BUNDLED_SOURCE = "kvcache-ai/Mooncake, pull request 2271, and ai-dynamo/nixl, pull request 1929: what two copies did"
BUNDLED_LIBRARY = re.compile(r"lib(?:fabric|efa|ibverbs|rdmacm)-[0-9a-f]{8}\.so.*")
VERSIONED_NAME = re.compile(r"\.so\.\d")  # the others are for a linker
DRIVER_LIBRARY = re.compile(r"lib(?:cuda|nvidia-|nvcuvid)[\w-]*\.so")  # which a runtime mounts
MAX_SHOWN = 4
NOT_FOUND = re.compile(
    r"cannot open shared object file|: not in the image's"
)  # another check reports a missing library
# What a fault names, and what then helps.
FIXES = (
    (r"GLIBC_[\d.]+'", "compile it on the image's distribution or an older one, or take a base with a newer glibc"),
    (r"(?:GLIBCXX|CXXABI|GCC)_[\d.]+'", "take the folder of the older libstdc++ (conda's, often) off LD_LIBRARY_PATH"),
    (
        r"(?:EFA|IBVERBS|IBVERBS_PRIVATE|MLX5|RDMACM|FABRIC)_[\d.]+'",
        "install rdma-core and libfabric from one source: run the EFA installer in this image, copy no part of another",
    ),
    (r"undefined symbol", "install both libraries from one release: the one calls what the other does not have"),
    (r"executable stack", "link it with -z noexecstack, or run patchelf --clear-execstack: glibc 2.41 refuses it"),
    (r"no file|took more than|not asked", "remove what is no regular file, and install the library again"),
)


def requested_names(inspection: Inspection, files: Files, libraries: Libraries) -> list[str]:
    """Return the libraries that a job asks for by name, and what those miss."""
    fabric, nccl = inspection.expected.fabric, nccl_in_use(inspection)
    names = [LIBNCCL, *([VERBS] if fabric else [])]
    if fabric == "efa":
        plugins = tried_plugin_names(inspection, libraries, nccl.path) if nccl else []
        names += [LIBEFA, LIBFABRIC, *plugins]
    names += [name for path in roots(inspection, files, libraries) for name in closure(libraries, path).missing]
    return list(dict.fromkeys(names))


@pytest.mark.validator("libraries.intact", source=MAPPING_SOURCE)
def test_intact(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """What a job asks for by name is a library of this machine, and no pointer, page, dangling link or pipe."""
    broken_files: dict[str, BrokenFile] = {}
    for name in requested_names(inspection, files, libraries):
        broken_files |= broken_candidates(inspection, libraries, name)
    provider_paths = [
        path for path, driver in opened_providers(files, libraries).items() if driver == inspection.expected.fabric
    ]
    providers = {path: broken(inspection, path) for path in provider_paths}
    broken_files |= {path: faults for path, faults in providers.items() if faults} if all(providers.values()) else {}
    behind_links = {resolve_links(files, path) for path in broken_files if files.libraries[path].target}
    faults = [fault for path, fault in broken_files.items() if path not in behind_links or files.libraries[path].target]
    require(
        not faults,
        expected=f"libraries for {inspection.subject.machine or 'the machine of the image'}",
        actual="; ".join(fault.actual for fault in faults[:MAX_SHOWN]) or "every one is",
        fix=faults[0].fix if faults else "",
    )


@pytest.mark.validator("libraries.links", source=SEARCH_SOURCE, severity="note")
def test_links(
    inspection: Inspection, files: Files, libraries: Libraries, settings: Settings, require: Requirement
) -> None:
    """No link to a library leads nowhere in a folder that the loader is told to search."""
    environment = inspection.subject.environment
    folders = {*environment.get("LD_LIBRARY_PATH", "").split(":"), *settings.loader_folders}
    usable_names = {base_name(path) for path, file in files.libraries.items() if not file.condition}
    elsewhere = {*requested_names(inspection, files, libraries), *usable_names}
    lines = [
        f"{path} is a link to {file.target}, which is not there: the loader passes by it"
        for path, file in files.libraries.items()
        if file.condition == "dangling" and path.rpartition("/")[0] in folders and base_name(path) not in elsewhere
        if VERSIONED_NAME.search(path) and not DRIVER_LIBRARY.match(base_name(path))
    ]
    require(
        not lines,
        expected="links that lead to libraries",
        actual="; ".join(lines[:MAX_SHOWN]) or "all of them do",
        fix="install what the links name, or remove them",
    )


@pytest.mark.validator("libraries.load", source=BINDING_SOURCE)
def test_load(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """The loader takes every library of the job, with each symbol and version that it asks for."""
    if any(broken_candidates(inspection, libraries, name) for name in requested_names(inspection, files, libraries)):
        pytest.skip("a file is no library: see libraries.intact")
    used = [path for path in roots(inspection, files, libraries) if not broken(inspection, path)]
    if not used:
        pytest.skip("the image has no library of a fabric: see nccl.found")
    faults = [fault for path in used for fault in closure(libraries, path).faults]
    faults += [c.error for path in used if (c := closure(libraries, path)).error.startswith("not asked")]
    refused = [answer.error for answer in libraries.resolved.values() if answer.file in used and answer.error]
    faults += [error for error in refused if not NOT_FOUND.search(error)]
    lines = _deduplicate(faults)
    require(
        not lines,
        expected="no word of refusal",
        actual="; ".join(map(explain_refusal, lines[:MAX_SHOWN]))
        or f"{len(used)} libraries are taken, with what they need",
        fix=next(
            (fix for word, fix in FIXES if lines and re.search(word, lines[0])), "install it again from its source"
        ),
    )


def _deduplicate(faults: list[str]) -> list[str]:
    """Return each fault once: versions before the symbols that lack for want of them.

    Of several that ask a file for a version, as a link and the library behind it, it is the first.
    """
    lines = list(dict.fromkeys(re.sub(r"^[^:]*: (?=/)", "", fault) for fault in faults))
    by_file = {fault.partition(" (required by ")[0]: fault for fault in reversed(lines) if "version `" in fault}
    versions = [fault for fault in lines if fault in by_file.values()]
    return [fault for fault in versions or lines if not any(fault != other and fault in other for other in lines)]


@pytest.mark.validator("libraries.bundled", source=BUNDLED_SOURCE, severity="warning", fabric="any")
def test_bundled(files: Files, require: Requirement) -> None:
    """No wheel brings a libfabric or libibverbs of its own, under the name that auditwheel gives it."""
    paths = [p for p, file in files.libraries.items() if BUNDLED_LIBRARY.fullmatch(base_name(p)) and not file.target]
    require(
        not paths,
        expected="none: a process then has two, each with its own devices and providers",
        actual=f"a wheel's own {', '.join(paths[:MAX_SHOWN])} finds none of the image's providers, and so no device"
        if paths
        else "none",
        fix="install a build of that wheel which takes the image's own library (auditwheel repair --exclude), or leave "
        "it out where NCCL uses the fabric",
    )


@pytest.mark.validator("verbs.closure", source=DRIVER_SOURCE, fabric="any")
def test_providers(
    inspection: Inspection, files: Files, libraries: Libraries, fabric: str, require: Requirement
) -> None:
    """Every library that the fabric's verbs provider needs is found."""
    provider_paths = [path for path, driver in opened_providers(files, libraries).items() if driver == fabric]
    if not provider_paths:
        pytest.skip("libibverbs opens no provider of the fabric: see verbs.provider")
    missing = {path: lacks for path in provider_paths if (lacks := closure(libraries, path).missing)}
    require(
        not missing,
        expected="nothing missing",
        actual="; ".join(
            f"{path} is not loaded: it finds no {describe_missing_libraries(inspection, lacks)}"
            for path, lacks in missing.items()
        )
        or f"complete for {', '.join(provider_paths)}",
        fix=f"install what brings {', '.join(name for lacks in missing.values() for name in lacks)}, "
        "or ibverbs-providers again",
    )


@pytest.mark.validator("verbs.others", source=DRIVER_SOURCE, severity="warning")
def test_others(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """Every other driver that is announced in /etc/libibverbs.d can be loaded, so that no process warns."""
    announced = {base_name(p).removesuffix(".driver"): p for p in files.libraries if p.endswith(".driver")}
    announced.pop(inspection.expected.fabric or "", None)
    if not announced or not libraries.verbs_looks_for:
        pytest.skip("no other driver is announced")
    opened = opened_providers(files, libraries)
    without = {name: path for name, path in announced.items() if name not in opened.values()}
    faults = [
        f"{path} announces {name}, of which there is no provider: libibverbs warns, no more"
        for name, path in without.items()
    ]
    announced_alone = len(faults)
    for path in (path for path, driver in opened.items() if driver in announced):
        answer = closure(libraries, path)
        faults += [f"{path} needs {', '.join(answer.missing)}, not there"] if answer.missing else answer.faults[:1]
    require(
        not faults,
        expected="a provider that loads for each file in /etc/libibverbs.d",
        actual="; ".join(faults[:MAX_SHOWN]) or f"{len(announced)} have one",
        fix="remove the .driver files of what is not used, or install ibverbs-providers whole",
        severity="note" if faults and len(faults) == announced_alone else None,
    )
