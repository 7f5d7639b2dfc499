"""torch works, with the CUDA that it was built for."""

import platform
import re

from rdma_images.inspection.inspection import (
    Inspection,
    describe_missing_libraries,
    linked_nccl,
    missing_in,
    wheel_nccl,
)
from rdma_images.inspection.measurements import Libraries, MeasuredPackages
from rdma_images.validate.validator import Requirement, skip, skip_unmeasured, validator
from validators.support.in_use import LIBNCCL, missing_for_torch, torch_libraries
from validators.support.wording import shorten_names

LOADER_SOURCE = "ld.so(8) with LD_TRACE_LOADED_OBJECTS: every library the loader would map"
UNDEFINED_IN_NCCL = re.compile(r"undefined symbol: (nccl\w*)")
UNDEFINED_VERSION = re.compile(r"undefined symbol: \w+, version (lib[\w.-]+\.so[\d.]*)")


def undefined_for_torch(libraries: Libraries) -> list[str]:
    """Return what torch calls and its NCCL does not have, in the loader's words."""
    return [
        fault
        for path in torch_libraries(libraries)
        for fault in libraries.closures[path].faults
        if UNDEFINED_IN_NCCL.search(fault)
    ]


def _calls(libraries: Libraries, undefined: list[str]) -> str:
    """Return what torch calls and its NCCL lacks, in a sentence; "" for nothing."""
    names = list(dict.fromkeys(match.group(1) for fault in undefined if (match := UNDEFINED_IN_NCCL.search(fault))))
    file = linked_nccl(libraries)
    library = libraries.nccl.get(file)
    nccl = f"NCCL {library.version} at {file}" if library else "the NCCL that it gets"
    return f"torch calls {shorten_names(names)}, which {nccl} does not have" if names else ""


def other_nccl(libraries: Libraries) -> str:
    """Return the NCCL that torch gets in place of the wheel's; "" for none."""
    wheel, closures = wheel_nccl(libraries), [libraries.closures[path].libraries for path in torch_libraries(libraries)]
    files = {libraries_by_name[LIBNCCL] for libraries_by_name in closures if LIBNCCL in libraries_by_name}
    return next(iter(sorted(files - {wheel})), "") if wheel else ""


def nccl_at_fault(libraries: Libraries) -> bool:
    """Return whether torch cannot be imported because of NCCL."""
    return not libraries.nccl or any(missing_in(libraries, path) for path in libraries.nccl)


@validator("torch.closure", source=LOADER_SOURCE)
def test_closure(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """Every library that torch needs is found, with what it calls of NCCL."""
    paths = torch_libraries(libraries) or skip("the image has no torch with CUDA")
    missing, undefined = missing_for_torch(libraries), undefined_for_torch(libraries)
    stray = other_nccl(libraries) if undefined and not missing else ""
    actual = (
        f"torch cannot be imported: it finds no {describe_missing_libraries(inspection, missing)}"
        if missing
        else _calls(libraries, undefined)
    )
    require(
        not actual,
        expected="nothing missing but the driver's libcuda.so.1",
        actual=actual or f"complete for {len(paths)} libraries",
        fix=f"take {stray} out of LD_PRELOAD, or its folder out of LD_LIBRARY_PATH: torch then gets its wheel's"
        if stray
        else "install the wheels that torch requires (pip check names them)"
        + (f": {', '.join(missing)}" if missing else ", its NCCL last"),
    )


@validator("torch.imports", source="import torch, in a process of its own")
def test_imports(
    inspection: Inspection, libraries: Libraries, packages: MeasuredPackages, require: Requirement
) -> None:
    """`import torch` works."""
    installed = [folder["torch"] for folder in packages.wheels.values() if "torch" in folder]
    torch, why = inspection.measured.torch, inspection.measured.missing.get("torch", "")
    if not installed and not torch:
        skip("the image has no torch")
    if "torch" in inspection.measured.timed_out:
        skip_unmeasured(inspection, "torch")
    if not torch and (missing_for_torch(libraries) or undefined_for_torch(libraries)):
        skip("libraries that torch needs are missing: see torch.closure")
    reports_nccl = inspection.expected.fabric or libraries.nccl
    if not torch and torch_libraries(libraries) and nccl_at_fault(libraries) and reports_nccl:
        skip("NCCL is missing or lacks a library: see nccl.found or nccl.closure")
    if (
        not torch
        and "tools" in inspection.measured.missing
        and inspection.subject.machine not in ("", platform.machine())
    ):
        skip(f"{why}, on a machine of another architecture")
    stray = _stray_library(libraries, why)
    stray_words = f"{stray} comes before the one of torch's wheels, and is of another release: " if stray else ""
    require(
        torch is not None,
        expected="the version of torch",
        actual=torch.version if torch else f"import torch fails: {stray_words}{why}",
        fix=f"take {stray.rpartition('/')[0]} out of LD_LIBRARY_PATH: torch then gets its wheels' libraries"
        if stray
        else "run `python3 -c 'import torch'` in the image: its message names the file at fault",
    )


def _stray_library(libraries: Libraries, why: str) -> str:
    """Return the file outside of wheels that torch gets and lacks a symbol; "" for none."""
    match = UNDEFINED_VERSION.search(why)
    files = [libraries.closures[path].libraries for path in torch_libraries(libraries)] if match else []
    paths = [names[match[1]] for names in files if match and match[1] in names]
    return next((file for file in paths if "-packages/" not in file), "")
