"""Validators of the imports of the GPU stack's packages, as they were tried in the image."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest
from packaging.utils import canonicalize_name

from rdma_images.inspection.inspection import Inspection, base_name, describe_missing_libraries
from rdma_images.inspection.measurements import FailedImport, HiddenModule, UnopenedLibraries
from rdma_images.validate.probes.imports import OPERATOR_BUILDER
from rdma_images.validate.pytest_plugin import Requirement, unmeasured
from validators.in_use import explain_module, missing_library
from validators.python_packages import hidden_packages, module_faults, packages_reported, torch_version
from validators.requirements import absent_requirement, explained_failures

IMPORT_SOURCE = "import NAME, in a process of its own that has imported torch before"
WORKDIR_SOURCE = (
    "`python -c 'import NAME'` in the working directory, and in /: the folder where a program starts comes first"
)
LIBRARY_PATH = re.compile(r"(/\S+\.so[\w.]*): ")
FILE_SUFFIX = re.compile(r" \(/[^()]*\)$")  # Python's own words about a module that lacks a name
NUMPY_COMPLAINT = re.compile(r"compiled using NumPy 1\.x cannot be run in NumPy (\S+)")
RECORD_FOLDER = re.compile(r"([\w.]+)-[^/]*\.(?:dist|egg)-info$")
SIZE_COMPLAINT = re.compile(r"numpy\.\w+ size changed")
MAX_SHOWN = 4


@pytest.mark.validator("packages.imports", source=IMPORT_SOURCE)
def test_imports(inspection: Inspection, require: Requirement) -> None:
    """Each package that uses torch, jax or libraries for GPUs, or that is in doubt, can be imported and finds CUDA."""
    torch, imports = inspection.measured.torch, inspection.measured.imports
    imported = imports.imported if imports else {}
    if not torch and "torch" in inspection.measured.lost:
        pytest.skip("torch cannot be imported: see torch.imports")
    all_failures = [*(imports.failed if imports else ()), *_complaint_of_torch(inspection)]
    if not all_failures and not imports:
        unmeasured(inspection, "imports")
    unopened = imports.unopened if imports else []
    reported = _reported_elsewhere(inspection, all_failures)
    explained = [failure for failure, _ in explained_failures(inspection)]
    failed = [
        fault
        for fault in all_failures
        if fault not in explained and not reported.intersection([fault.package, *fault.through])
    ]
    if all_failures and not failed and not unopened:
        pytest.skip("what cannot be imported has its cause in torch.extensions, packages.requires or transports.load")
    if not failed and not unopened and not imported:
        pytest.skip("no import came to its end without a GPU, or in time")
    certain = [fault for fault in failed if fault.certain]
    groups = _by_cause(certain or failed)
    lines = [_sentence(inspection, group) for group in groups]
    lines += [_describe_unopened(inspection, package) for package in unopened]
    fixes = [_fix_unopened(inspection, package) for package in unopened]
    more = f"; {len(lines) - MAX_SHOWN} more" if len(lines) > MAX_SHOWN else ""
    used = [
        fault for fault in certain if fault.module != OPERATOR_BUILDER
    ]  # that is for images that compile operators alone
    broken = any(fault.error and (fault.required or not fault.missing) for fault in used)
    require(
        not failed and not unopened,
        expected="modules that can be imported",
        actual="; ".join(lines[:MAX_SHOWN]) + more or f"{len(imported)} can be imported",
        fix="; ".join(dict.fromkeys([*(_fix(inspection, group[0]) for group in groups[:MAX_SHOWN]), *fixes])),
        severity=None if broken or unopened else "warning" if certain else "note",
    )


@pytest.mark.validator("packages.hidden", source=WORKDIR_SOURCE, severity="warning")
def test_hidden(inspection: Inspection, require: Requirement) -> None:
    """A program that starts in the working directory, or with PYTHONPATH, imports what it imports elsewhere."""
    imports = inspection.measured.imports
    if not imports:
        unmeasured(inspection, "imports")
    releases = [] if any(failure.shadow for failure in imports.failed) else list(_hidden_releases(inspection))
    more = f"; {len(releases) - 1} more" if len(releases) > 1 else ""
    overwritten = [
        f"{row.package} and {row.other} both write {row.file}: the one that was installed last is there"
        for row in imports.overwritten
    ]
    fixes = [f"rename {name}, or start elsewhere" for name in dict.fromkeys(module.first for module in imports.hidden)]
    fixes += ["take the folder out of PYTHONPATH, or install the same releases there"] if releases else []
    require(
        not imports.hidden and not releases and not overwritten,
        expected="no module in the working directory that takes the place of another",
        actual="; ".join([*map(_describe_hiding, imports.hidden), *overwritten, *releases[:1]]) + more
        or "the same modules as elsewhere",
        fix="; ".join([*fixes, *(["uninstall both, then install the one that is wanted"] if overwritten else [])]),
    )


def _hidden_releases(inspection: Inspection) -> Iterator[str]:
    """Yield which packages of PYTHONPATH's folders are of another version than those that they come before."""
    packages = inspection.measured.packages
    wheels = packages.wheels if packages else {}
    for folder in filter(wheels.get, inspection.subject.environment.get("PYTHONPATH", "").split(":")):
        for name, version in sorted(wheels[folder].items()):
            other = next((path for path, found in wheels.items() if path != folder and name in found), "")
            if other and wheels[other][name] != version:
                yield f"{name} {version} in {folder} comes before {wheels[other][name]} in {other}, by PYTHONPATH"


def _describe_hiding(module: HiddenModule) -> str:
    """Return what a file of the working directory keeps a program from importing."""
    folder, name = module.first.rpartition("/")[0], base_name(module.second)
    return (
        f"{module.first} takes the place of {name}: in {folder}, python cannot import {module.module}: {module.words}"
    )


def _complaint_of_torch(inspection: Inspection) -> list[FailedImport]:
    """Return what NumPy says of torch itself, whose import goes on."""
    torch = inspection.measured.torch
    if not torch or not torch.numpy:
        return []
    words = torch.numpy
    return [FailedImport(package="torch", version=torch.version, module="torch", error="", words=words, certain=True)]


def _reported_elsewhere(inspection: Inspection, failed: Iterable[FailedImport]) -> set[str]:
    """Return the packages that other checks name.

    They are for another torch, CUDA or Python, or have a module that fails.
    """
    packages, torch, tree = inspection.measured.packages, inspection.measured.torch, inspection.measured.tree
    names: set[str] = set()
    paths: list[str] = []
    if packages:
        names = packages_reported(inspection)
        names |= {
            canonicalize_name(match[1]) for path in packages.other_python if (match := RECORD_FOLDER.search(path))
        }
    if torch:
        paths += [path for path, fault in torch.extensions.items() if fault and path not in torch.optional]
    if tree:
        paths += [path for path, fault in module_faults(inspection, tree.files, tree.libraries).items() if fault]
    tops = {path.rpartition("-packages/")[2].partition("/")[0].partition(".")[0] for path in paths}
    named = names | {fault.package for fault in failed if fault.module.partition(".")[0] in tops}
    return named - hidden_packages(inspection)


def _by_cause(failed: Iterable[FailedImport]) -> list[list[FailedImport]]:
    """Return the failures in groups of one cause, each from where they arise."""
    groups: dict[str, list[FailedImport]] = defaultdict(list)
    for fault in failed:
        groups[fault.missing or fault.words].append(fault)
    return [sorted(group, key=_distance) for group in groups.values()]


def _distance(fault: FailedImport) -> tuple[bool, int]:
    """Return how far a package is from the cause of its failure, for sorting."""
    return fault.through[-1:] not in ([], [fault.package]), len(fault.through)


def _describe_unopened(inspection: Inspection, package: UnopenedLibraries) -> str:
    """Return what a package does not find as it meets a GPU."""
    shown = package.missing[:1]
    more = f" and {len(package.missing) - 1} more" if len(package.missing) > 1 else ""
    library = describe_missing_libraries(inspection, shown)
    return f"{package.package} finds no {library}{more}, which it opens where it meets a GPU: it cannot use one"


def _fix_unopened(inspection: Inspection, package: UnopenedLibraries) -> str:
    """Return what lets a package find the libraries: the way to their folders where the image has them."""
    libraries = inspection.measured.tree.files.libraries if inspection.measured.tree else {}
    folders = {base_name(path): path.rpartition("/")[0] for path in libraries}
    if all(name in folders for name in package.missing):
        return f"set LD_LIBRARY_PATH={':'.join(dict.fromkeys(folders[name] for name in package.missing))}"
    return f"install the release of NVIDIA's wheels that has {', '.join(package.missing[:MAX_SHOWN])}"


def _sentence(inspection: Inspection, group: list[FailedImport]) -> str:
    """Return which packages cannot be imported, and why: of a missing module, who requires it."""
    first, *others = group
    importing = list(dict.fromkeys(fault.package for fault in group))
    if first.lost and not first.shadow:
        package, _, file = first.lost.partition(": ")
        failing = ", ".join(importing[:MAX_SHOWN])
        return f"{package} is not as it was installed ({file}): {failing} cannot be imported: {first.words}"
    if absent := absent_requirement(inspection, first):
        more = f" and {len(importing) - MAX_SHOWN} more" if len(importing) > MAX_SHOWN else ""
        return f"{absent}: {', '.join(importing[:MAX_SHOWN])}{more} cannot be imported"
    if first.shadow:
        return f"{first.shadow}: {', '.join(importing[:MAX_SHOWN])} {first.version} cannot be imported: {first.words}"
    module = "" if first.module == first.package.replace("-", "_") else f" ({first.module})"
    subject = f"{first.package} {first.version}{module}"
    names = list(dict.fromkeys(fault.package for fault in others if fault.package != first.package))
    more = f", nor can {', '.join(names[:MAX_SHOWN])}" if names else ""
    path, words = LIBRARY_PATH.search(first.words), FILE_SUFFIX.sub("", first.words) or first.error
    if numpy := NUMPY_COMPLAINT.search(words):
        verb = "cannot be imported" if first.error else "cannot use NumPy"
        module = (
            f"a module of {first.through[-1]}" if first.through[-1:] not in ([], [first.package]) else "a module of it"
        )
        return f"{subject} {verb}: {module} was compiled for NumPy 1, and NumPy {numpy[1]} is installed{more}"
    if path:
        words = explain_module(path[1], first.words[path.start() :], torch_version(inspection))
    if SIZE_COMPLAINT.search(words):
        words = f"it was compiled for another NumPy than {_version(inspection, 'numpy')}: {words}"
    if first.through[-1:] not in ([], [first.package]) and words == first.words and first.certain:
        words = f"{first.through[-1]} {_version(inspection, first.through[-1])} ends with: {words}"
    if missing := missing_library(first.words):
        words = f"it finds no {describe_missing_libraries(inspection, missing)}"
    if first.missing and first.through[-1:] not in ([], [first.package]):
        words = f"{first.through[-1]} imports {first.missing}, which is not installed"
    return f"{subject} cannot be imported: {words}{more}"


def _version(inspection: Inspection, package: str) -> str:
    """Return the version of a package that is installed."""
    packages = inspection.measured.packages
    return dict(packages.installed).get(package, "the installed one") if packages else "the installed one"


def _fix(inspection: Inspection, fault: FailedImport) -> str:
    """Return what makes a package importable."""
    if NUMPY_COMPLAINT.search(fault.words):
        return f"pip install 'numpy<2', or a release of {fault.package} that was compiled for NumPy 2"
    if absent := absent_requirement(inspection, fault):
        return f"pip install '{absent.text}'"
    if missing := missing_library(fault.words):
        return f"install the package of the system that has {missing[0]}: `apt-file search {missing[0]}` names it"
    if fault.lost and not fault.shadow:
        package = fault.lost.partition(":")[0].replace(" ", "==")
        return f"pip install --force-reinstall --no-deps {package}"
    if fault.shadow:
        return "take the folder away that comes first, or install there what belongs together"
    if fault.missing == "pkg_resources":
        return "pip install 'setuptools<81', which still has pkg_resources"
    if fault.missing:
        return f"install the package that has the module {fault.missing}"
    return (
        f"see `python3 -c 'import {fault.module}'` in the image, and install releases that belong together: "
        "`pip check` names the requirements that are not met"
    )
