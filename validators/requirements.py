"""Unmet requirements of the GPU stack's Python packages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PackageRequirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rdma_images.core.check import Severity
from rdma_images.facts import nccl_releases
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import FailedImport, MeasuredPackages
from rdma_images.validate.probes.distributions import FRAMEWORKS
from rdma_images.validate.probes.packages import COMPILED_FOR, JAX_EXTRA, PYTHON_FOLDER

PINNING_OPERATORS = ("==", "~=")


class UnmetRequirement(NamedTuple):
    """A requirement of a package that is not met.

    Attributes:
        package: The package that requires it, by name.
        version: Its version.
        requirement: What it requires.
        installed: The version that is there; "" for none.
        severity: How bad that is.
        user: The framework that requires the package for this, with its version; "" for none.
    """

    package: str
    version: str
    requirement: PackageRequirement
    installed: str
    severity: Severity
    user: str = ""

    @property
    def name(self) -> str:
        """Return the package that is required, by its normalised name."""
        return canonicalize_name(self.requirement.name)

    @property
    def text(self) -> str:
        """Return the requirement as pip takes it."""
        return f"{self.name}{self.requirement.specifier}"

    @property
    def concerns_framework(self) -> bool:
        """Return whether a framework is required, or a package that others are compiled for."""
        return _is_framework(self.name)

    def __str__(self) -> str:
        """Return the requirement and what is installed, as part of a sentence."""
        package = f"{self.package} {self.version}"
        if not self.installed:
            return f"{package} requires {self.text}, which is not installed"
        sentence = f"{self.user} requires {self.text} by {package}" if self.user else f"{package} requires {self.text}"
        return f"{sentence}, and {self.installed} is installed"


class _Package(NamedTuple):
    """An installed package: its requirements, and whether it is compiled."""

    name: str
    version: str
    requirements: tuple[PackageRequirement, ...]
    compiled: bool

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"


def unmet_requirements(inspection: Inspection) -> list[UnmetRequirement]:
    """Return the unmet requirements of the GPU stack and what it requires, the worst first.

    What is not installed is left out: it may be there in another form, as in conda's packages and NVIDIA's containers.
    The NCCL that torch is pinned to is, too: see nccl.compiled.
    """
    packages = inspection.measured.packages
    if not packages:
        return []
    faults = [
        fault
        for folder in packages.wheels
        for fault in _unmet_in_folder(inspection, packages, folder)
        if fault.installed
    ]
    worst_first = ("warning", "note")
    unique = {str(fault): fault for fault in faults}.values()  # several extras may require the same
    return sorted(unique, key=lambda fault: worst_first.index(fault.severity))


def explained_failures(inspection: Inspection) -> list[tuple[FailedImport, UnmetRequirement]]:
    """Return the imports that fail on every machine for want of a requirement, each with that."""
    imports, requirements = inspection.measured.imports, unmet_requirements(inspection)
    causes = [(failure, _nearest_cause(failure, requirements)) for failure in (imports.failed if imports else ())]
    return [
        (failure, cause)
        for failure, cause in causes
        if cause and failure.certain and failure.error and not failure.shadow
    ]


def _nearest_cause(failure: FailedImport, requirements: Sequence[UnmetRequirement]) -> UnmetRequirement | None:
    """Return the unmet requirement nearest to a failed import; None where none is on its way.

    It is one of a package whose code it went through, or of the package in which it ended.
    """
    route = (failure.package, *failure.through)
    by_package = [fault for package in route for fault in requirements if fault.package == package]
    return next(iter(by_package), None) or next((fault for fault in requirements if fault.name in route), None)


def absent_requirement(inspection: Inspection, failure: FailedImport) -> UnmetRequirement | None:
    """Return the requirement whose module an import lacks and that is not installed, if any.

    A package may have another name than its module: it is then the only one that the package lacks.
    """
    packages = inspection.measured.packages
    if not packages or not failure.missing:
        return None
    package, module = (failure.through or [failure.package])[-1], canonicalize_name(failure.missing.partition(".")[0])
    absent = [
        fault
        for folder in packages.wheels
        for fault in _unmet_in_folder(inspection, packages, folder, (package,))
        if not fault.installed and fault.package == package
    ]
    return next((fault for fault in absent if fault.name == module), absent[0] if len(absent) == 1 else None)


def _unmet_in_folder(
    inspection: Inspection, packages: MeasuredPackages, folder: str, roots: tuple[str, ...] = ()
) -> Iterator[UnmetRequirement]:
    """Yield the unmet requirements in a folder of `roots`, or of the GPU stack, and below."""
    installed = _packages_in(packages, folder)
    environment = _marker_environment(inspection, folder)
    queue = [(name, JAX_EXTRA, "") for name in roots or _gpu_stack(inspection, installed) if name in installed]
    visited = set()
    while queue:
        name, extra, user = queue.pop(0)
        if (name, extra) in visited:
            continue
        visited.add((name, extra))
        package = installed[name]
        is_framework = _is_framework(name)
        for requirement in package.requirements:
            if requirement.marker and not requirement.marker.evaluate({**environment, "extra": extra}):
                continue
            required = canonicalize_name(requirement.name)
            version = installed[required].version if required in installed else ""
            if not version or not _accepts(requirement, version):
                severity = _severity(package, requirement, version, bool(user) or is_framework)
                if severity:
                    yield UnmetRequirement(name, package.version, requirement, version, severity, user)
            if version:
                extras = requirement.extras or ("",)
                queue += [
                    (required, extra_name, package.title if is_framework else "") for extra_name in sorted(extras)
                ]


def _is_framework(name: str) -> bool:
    return name in FRAMEWORKS or COMPILED_FOR.match(name) is not None


def _severity(
    package: _Package, requirement: PackageRequirement, version: str, concerns_framework: bool
) -> Severity | None:
    """Return how bad an unmet requirement is; None where a check of NCCL tells of it.

    What is compiled for another framework fails, and so does a framework with an older library than it was compiled
    with. Other requirements are often narrower than what works.
    """
    name = canonicalize_name(requirement.name)
    optional = requirement.marker is not None and JAX_EXTRA in str(requirement.marker)
    pinned = optional or any(clause.operator in PINNING_OPERATORS for clause in requirement.specifier)
    if nccl_releases.WHEEL_NAME.fullmatch(name) and not optional:
        return None
    if package.compiled and _is_framework(name):
        return "warning"
    return "warning" if concerns_framework and pinned and version and _is_older(requirement, version) else "note"


def _packages_in(packages: MeasuredPackages, folder: str) -> dict[str, _Package]:
    """Return the packages of a folder by name, with the requirements that can be read."""
    lines = {title.partition(" ")[0]: values for title, values in packages.requires.get(folder, {}).items()}
    compiled = set(packages.compiled.get(folder, ()))
    return {
        name: _Package(name, version, tuple(_parsed(lines.get(name, []))), name in compiled)
        for name, version in packages.wheels[folder].items()
    }


def _parsed(lines: list[str]) -> Iterator[PackageRequirement]:
    for line in lines:
        try:
            yield PackageRequirement(line)
        except InvalidRequirement:
            continue


def _gpu_stack(inspection: Inspection, installed: Mapping[str, _Package]) -> list[str]:
    """Return the frameworks, and the packages that require them or that the probe imported."""
    imports = inspection.measured.imports
    stack = {*FRAMEWORKS, *filter(COMPILED_FOR.match, installed), *(imports.imported if imports else ())}
    stack |= {failure.package for failure in (imports.failed if imports else ())}
    is_growing = True
    while is_growing:
        users = {
            name
            for name, package in installed.items()
            if any(canonicalize_name(requirement.name) in stack for requirement in package.requirements)
        }
        is_growing = not users <= stack
        stack |= users
    return sorted(stack, key=lambda name: (name not in FRAMEWORKS, name))


def _marker_environment(inspection: Inspection, folder: str) -> dict[str, str]:
    """Return what requirements' markers are compared with, for a folder's Python."""
    system, match = inspection.measured.system, PYTHON_FOLDER.search(folder)
    python = match[1] if match else ""
    environment = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    environment |= {"platform_machine": inspection.subject.machine} if inspection.subject.machine else {}
    if system and system.python.startswith(python or system.python):
        environment |= {"python_full_version": system.python, "python_version": ".".join(system.python.split(".")[:2])}
    elif python:
        environment |= {"python_full_version": f"{python}.0", "python_version": python}
    return {name: value for name, value in environment.items() if value}


def _accepts(requirement: PackageRequirement, version: str) -> bool:
    """Return whether a version meets a requirement.

    A build before a release, as NVIDIA's containers have, counts as the release.
    """
    try:
        release = Version(version)
    except InvalidVersion:
        return True
    candidates = [version, release.base_version] if release.is_prerelease else [version]
    return any(requirement.specifier.contains(candidate, prereleases=True) for candidate in candidates)


def _is_older(requirement: PackageRequirement, version: str) -> bool:
    """Return whether a version is older than a requirement asks for."""
    lower = (*PINNING_OPERATORS, ">=")
    lower_bounds = [clause.version.removesuffix(".*") for clause in requirement.specifier if clause.operator in lower]
    try:
        return any(Version(version) < Version(bound) for bound in lower_bounds)
    except InvalidVersion:
        return False
