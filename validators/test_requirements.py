"""Validators of the requirements of Python packages."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import FailedImport, Libraries, MeasuredPackages
from rdma_images.validate.pytest_plugin import Requirement
from validators.in_use import explain_module
from validators.python_packages import PackageFault, packages_for_another_cuda, without_reported
from validators.requirements import UnmetRequirement, explained_failures, unmet_requirements

REQUIREMENT_SOURCE = (
    "the wheels' Requires-Dist and local versions; pytorch/vision and pytorch/audio compare their CUDA with torch's as "
    "they are imported"
)
JAX_PLUGIN = re.compile(r"jax-cuda\d+-(?:plugin|pjrt)")
RELEASE = re.compile(r"\d+(?:\.\d+)*")  # of a version
NVIDIA_WHEEL = re.compile(r"nvidia-([a-z-]+)-cu\d+")
MAX_SHOWN = 4
TOGETHER_FIX = (
    "install them in one command with the torch or jax that they are for, from one index; for jax, nvidia-nccl-cu12 or "
    "-cu13, too"
)


@pytest.mark.validator("packages.requires", source=REQUIREMENT_SOURCE, severity="warning")
def test_requires(
    inspection: Inspection, packages: MeasuredPackages, libraries: Libraries, require: Requirement
) -> None:
    """Packages that use torch or jax are beside the releases that they require, for one CUDA, and jax has NCCL."""
    unmet = unmet_requirements(inspection)
    failures = defaultdict(list)
    for failure, cause in explained_failures(inspection):
        failures[cause].append(failure)
    foreign = packages_for_another_cuda(inspection, packages, libraries)
    foreign += [fault for wheels in packages.wheels.values() for fault in _for_another_jaxlib(wheels)]
    if inspection.measured.torch is None:  # else torch.cuda tells of them
        foreign += _wheels_for_two_cudas(packages)
    jax = [(n, v) for n, v in packages.installed if JAX_PLUGIN.fullmatch(n) or (n == "jaxlib" and "+cuda" in v)]
    if jax and not libraries.nccl:
        name, version = jax[0]
        problem = "opens NCCL by its name and finds none: collectives of several GPUs fail"
        foreign.append(PackageFault(name, f"{name} {version} {problem}"))
    serious = [*failures, *(fault for fault in unmet if fault.severity == "warning" and fault not in failures)]
    shown = serious if serious or foreign else unmet
    effects = [f"{group[0].package}: {group[0].words}" for group in failures.values()] + _failed_modules(inspection)
    lines = [*(_sentence(fault, failures.get(fault, ())) for fault in shown), *map(str, foreign)]
    require(
        not shown and not foreign,
        expected="packages whose requirements are met, and which are for one CUDA",
        actual="; ".join([*lines[:MAX_SHOWN], *effects[:MAX_SHOWN]]) or "they are",
        fix=_fix(shown, bool(foreign)),
        severity="error"
        if effects or _cannot_be_imported(inspection, foreign)
        else None
        if serious or foreign
        else "note",
    )


def _sentence(fault: UnmetRequirement, failures: Sequence[FailedImport]) -> str:
    """Return an unmet requirement, with the packages whose import it breaks."""
    names = list(dict.fromkeys(failure.package for failure in failures))
    if names:
        return f"{fault}: {', '.join(names[:MAX_SHOWN])} cannot be imported"
    if fault.severity == "note":
        return str(fault)
    return f"{fault}: {'it is compiled for another' if fault.concerns_framework else 'functions can be missing'}"


def _cannot_be_imported(inspection: Inspection, faults: Iterable[PackageFault]) -> bool:
    """Return whether a package with one of the faults cannot be imported."""
    imports = inspection.measured.imports
    failed = {failure.package for failure in (imports.failed if imports else ()) if failure.certain}
    return bool(failed.intersection(fault.package for fault in faults))


def _failed_modules(inspection: Inspection) -> list[str]:
    """Return why the first module of a package that is named here cannot be loaded."""
    torch = inspection.measured.torch
    if not torch:
        return []
    faults = {path: fault for path, fault in torch.extensions.items() if fault and path not in torch.optional}
    elsewhere = without_reported(inspection, faults)
    return [explain_module(path, fault, torch.version) for path, fault in faults.items() if path not in elsewhere][:1]


def _fix(unmet: Sequence[UnmetRequirement], has_foreign: bool) -> str:
    """Return what to install; `has_foreign` where a package is for another CUDA, too."""
    specifications = sorted({f"'{fault.text}'" for fault in unmet if not fault.concerns_framework})
    fixes = [f"pip install {' '.join(specifications)}"] if specifications else []
    return "; ".join(
        [*fixes, TOGETHER_FIX] if has_foreign or any(fault.concerns_framework for fault in unmet) else fixes
    )


def _for_another_jaxlib(wheels: Mapping[str, str]) -> list[PackageFault]:
    """Return jax's plugins for GPUs that are of another release than jaxlib.

    Without one of its release jax has no GPU. jax-ml/jax, jaxlib/plugin_support.py: both numbers have to be the same.
    """
    jaxlib = RELEASE.match(wheels.get("jaxlib", ""))
    return [
        PackageFault(name, f"{name} {version} is for jaxlib=={release[0]}, and jaxlib {wheels['jaxlib']} is installed")
        for name, version in sorted(wheels.items())
        if jaxlib and JAX_PLUGIN.fullmatch(name) and (release := RELEASE.match(version)) and release[0] != jaxlib[0]
    ]


def _wheels_for_two_cudas(packages: MeasuredPackages) -> list[PackageFault]:
    """Return which wheels of NVIDIA are there for two CUDA: both write the same files."""
    faults = []
    for wheels in packages.wheels.values():
        names: dict[str, list[str]] = {}
        for name in sorted(wheels):
            if (match := NVIDIA_WHEEL.fullmatch(name)) and match[1] != "nccl":  # nccl.wheels tells of that
                names.setdefault(match[1], []).append(name)
        for pair in (pair for pair in names.values() if len(pair) > 1):
            subject = " and ".join(f"{name} {wheels[name]}" for name in pair)
            faults.append(PackageFault(pair[0], f"{subject} write the same files: only the later ones are there"))
    return faults
