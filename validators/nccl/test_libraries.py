"""The libraries of a job: they are whole, and the loader takes them."""

import re

from rdma_images.chain.verbs import opened_providers
from rdma_images.inspection.inspection import Inspection, explain_refusal, resolve_links
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.probes.libraries import ImageLoader
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.broken_files import BrokenFile, broken
from validators.support.in_use import broken_candidates, closure, directly_opened, requested_names

MAPPING_SOURCE = (
    "glibc elf/dl-load.c: a library for another machine is passed over, a file that is no library ends the search"
)
BINDING_SOURCE = (
    "NVIDIA/nccl src/os/linux.cc and src/misc/ibvsymbols.cc: dlopen with RTLD_NOW, so every symbol must be there"
)
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
    (r"no file|took more than|not asked", "install the library again: what lies there is no regular file"),
)


@validator("libraries.intact", source=MAPPING_SOURCE)
def test_intact(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """Each library that a job opens by name is one for this machine: no LFS pointer, web page, broken link or pipe."""
    broken_files: dict[str, BrokenFile] = {}
    for name in requested_names(inspection, files, libraries):
        broken_files |= broken_candidates(inspection, libraries, name)
    provider_paths = [
        path for path, driver in opened_providers(files, libraries).items() if driver == inspection.expected.fabric
    ]
    providers = {path: broken(inspection, path) for path in provider_paths}
    broken_files |= {path: faults for path, faults in providers.items() if faults} if all(providers.values()) else {}
    links = {path for path in broken_files if files.library_files[path].target}
    behind_links = {resolve_links(files, path) for path in links}
    faults = [fault for path, fault in broken_files.items() if path not in behind_links or path in links]
    require(
        not faults,
        expected=f"libraries for {inspection.subject.machine or 'the machine of the image'}",
        actual="; ".join(fault.actual for fault in faults[:MAX_SHOWN]) or "every one is",
        fix=faults[0].fix if faults else "",
    )


@validator("libraries.load", source=BINDING_SOURCE)
def test_load(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """The loader takes every library of the job, with each symbol and version that it asks for."""
    if libraries.method != ImageLoader.method:
        skip(f"the loader was not run: {libraries.method}")
    if any(broken_candidates(inspection, libraries, name) for name in requested_names(inspection, files, libraries)):
        skip("a file is no library: see libraries.intact")
    used = [path for path in directly_opened(inspection, files, libraries) if not broken(inspection, path)]
    if not used:
        skip("the image has no library of a fabric: see nccl.found")
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
