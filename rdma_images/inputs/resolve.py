"""Resolve requirements to exact wheels with uv: one wheel file per package, with its size.

If the setup.py of a package cannot be run, its requirements are read from its source.
"""

import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from email.parser import HeaderParser

import requests
from packaging.pylock import Package, PackageSdist, PackageWheel
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, create_compatible_tags_selector
from packaging.utils import canonicalize_name, parse_wheel_filename

from rdma_images.core import local_package
from rdma_images.core.errors import RdmaImagesError, RefusedError, first_line
from rdma_images.core.http import FAILING, RetryPolicy
from rdma_images.core.image import MACHINES
from rdma_images.core.local_package import LocalPackage
from rdma_images.core.paths import COMMAND
from rdma_images.inputs import git_repositories, index_queries, web
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Lock, LockRequest, Wheel

INDEX_TIMEOUT_SECONDS = (10.0, 30.0)  # seconds to connect, seconds to answer
RETRY_POLICY = RetryPolicy(statuses=FAILING, retry_absent=True)  # of hundreds of questions one may well get lost
PARALLEL = 8
SOURCE_TIMEOUT_SECONDS = (10.0, 60.0)  # seconds to connect, seconds without a byte
LISTS = re.compile(r"[^/]+/(?:[^/]+/)?[^/]+\.egg-info/requires\.txt")  # of setuptools, beside PKG-INFO
METADATA = re.compile(r"[^/]+/PKG-INFO")
PackageFile = PackageWheel | PackageSdist
Selector = Callable[[Iterable[tuple[PackageWheel, AbstractSet[Tag]]]], Iterator[PackageWheel]]


class NoSolutionError(RdmaImagesError):
    """The package index has no wheels that go together; `words` are uv's."""

    def __init__(self, request: LockRequest, words: str) -> None:
        self.words = words
        fix = f"{COMMAND} plan --solve finds the torch and the base that fit; or change the packages"
        if request.installed:
            fix = "the packages of the image stay as they are: to replace one but torch, name it in python-packages"
        if source := re.search(r"Wheels are required for `([\w.-]+)`", words):
            its_wheel = "make a wheel of it with pip wheel in that image, and write ./NAME.whl"
            fix = its_wheel if request.installed else f"name {source[1]} under source-packages"
        if "was not found in the package registry" in words:
            fix = "correct the package's name, or name an index that has it as package-index in mirrors.yaml"
        super().__init__(f"locking {request.key}: no wheels go together: {words}\n{fix}")


def resolve_wheels(request: LockRequest, index: str, mirrors: Mirrors) -> Lock:
    """Return the wheels that satisfy `request`, one file a package.

    Raises RdmaImagesError with uv's reason when there is no solution, or the index does not answer; RefusedError for a
    release that nobody means.
    """
    local = local_package.by_name(request.requirements)
    packages = _packages(request, local, index, mirrors)
    chosen_files = _files(packages, request)
    refuse_placeholders((package for package, _ in chosen_files), request)
    with ThreadPoolExecutor(PARALLEL) as pool:
        sizes = pool.map(lambda chosen: file_size(chosen[1], mirrors), chosen_files)
        wheels = [
            Wheel(name=p.name, version=str(p.version), file=file.filename, sha256=file.hashes["sha256"], size=size)
            for (p, file), size in zip(chosen_files, sizes, strict=True)
        ]
    wheels += [_lock_local(package, request, local) for package in packages if _is_local(package)]
    return Lock(request=request, wheels=tuple(sorted(wheels, key=lambda wheel: wheel.name)))


def resolve_versions(request: LockRequest, index: str, mirrors: Mirrors) -> dict[str, str]:
    """Return the versions that `resolve_wheels` would lock, by name.

    Raises:
        NoSolutionError: The packages do not go together, or one of them has no wheel.
        RdmaImagesError: As `resolve_wheels`.
    """
    packages = _packages(request, local_package.by_name(request.requirements), index, mirrors)
    try:
        _files(packages, request)
    except RdmaImagesError as error:
        raise NoSolutionError(request, first_line(error)) from None
    return {package.name: str(package.version or "") for package in packages}


def refuse_placeholders(packages: Iterable[Package], request: LockRequest) -> None:
    """Raise RefusedError for a 0.0.0 or a development release of a package whose version nobody named.

    Only wheels are taken, and uv goes back until it finds one: of deepspeed, whose releases are sources, to 0.3.1.dev3.
    """
    unnamed = {canonicalize_name(line.name) for line in map(Requirement, request.requirements) if not line.specifier}
    for name, version in ((package.name, package.version) for package in packages if package.name in unnamed):
        if version and (version.is_devrelease or not any(version.release)):
            raise RefusedError(
                f"{name} {version} is a placeholder or no release: newer ones may have no wheel, and uv takes wheels "
                f"alone\nname another version, or {name} under source-packages; or, if it is meant, {name}=={version}"
            )


def _files(packages: Sequence[Package], request: LockRequest) -> list[tuple[Package, PackageFile]]:
    """Return each package of an index with the file that an installer would take. Raises RdmaImagesError for none."""
    tags = accepted_tags(request)
    selector = create_compatible_tags_selector(tags)
    for own in local_package.by_name(request.requirements).values():
        if own.kind == "wheel" and parse_wheel_filename(own.path.name)[3].isdisjoint(tags):
            reason = f"{own.address} is no wheel for Python {request.python} on {request.platform}"
            raise RdmaImagesError(f"{reason}\nname a wheel for it, or choose a base with the Python of this one")
    sources = {p.name: p.sdist for p in packages if p.sdist and p.name in request.sources and not p.wheels}
    return [(p, sources.get(p.name) or best_wheel(p, selector)) for p in packages if not _is_local(p)]


def _is_local(package: Package) -> bool:
    """Return whether a package comes from no index."""
    return bool(package.archive or package.directory or package.vcs)


def best_wheel(package: Package, selector: Selector) -> PackageWheel:
    """Return the wheel that an installer takes: best tag, then highest build number."""
    parsed = [(wheel, parse_wheel_filename(wheel.filename)) for wheel in package.wheels or ()]
    parsed.sort(key=lambda entry: entry[1][2], reverse=True)  # by build number, which the selector keeps among equals
    if best := next(selector((wheel, tags) for wheel, (*_, tags) in parsed), None):
        return best
    raise RdmaImagesError(
        f"{package.name} {package.version or ''} has no wheel for this python and platform\n"
        "name another version, or the package under source-packages in matrix.yaml"
    )


def accepted_tags(request: LockRequest) -> list[Tag]:
    """Return the wheel tags that the base's python and C library accept, best first."""
    machine = MACHINES[request.platform]
    major, minor = (int(part) for part in request.glibc.split("."))
    # Newest first, as pip does; the old names of manylinux stand beside the versions they are aliases of.
    platforms: list[str] = []
    aliases = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    for version in range(minor, 4, -1):
        platforms.append(f"manylinux_{major}_{version}_{machine}")
        if version in aliases:
            platforms.append(f"{aliases[version]}_{machine}")
    platforms.append(f"linux_{machine}")
    python = tuple(int(part) for part in request.python.split("."))
    short = "cp" + "".join(map(str, python))
    return [*cpython_tags(python, None, platforms), *compatible_tags(python, short, platforms)]


def file_size(file: PackageFile, mirrors: Mirrors) -> int:
    """Return a file's size in bytes, from the index or from the file's server."""
    if file.size is not None:
        return file.size
    try:
        size = web.file_size(file.url or file.path or "", mirrors, INDEX_TIMEOUT_SECONDS, RETRY_POLICY)
        reason = "its server does not say it"
    except (web.StatusError, requests.RequestException) as error:
        size, reason = None, web.describe_error(error, mirrors)
    if size is None:
        raise RdmaImagesError(f"the package index has no size of {file.filename}: {reason}\ntry again")
    return size


def _lock_local(package: Package, request: LockRequest, local: Mapping[str, LocalPackage]) -> Wheel:
    """Return a package that no index has as it is in a lock."""
    name = package.name
    version = "" if name in request.no_deps else str(package.version or "")
    if name not in local:
        raise RdmaImagesError(
            f"{name} comes from an address that another package names\n"
            "name it among the target's own packages too, as ./PATH or name @ git+https://HOST/REPOSITORY@COMMIT"
        )
    source = local[name]
    if source.kind != "wheel":
        return Wheel(name=name, version=version, origin=source.origin)
    path, size = source.path, source.path.stat().st_size
    return Wheel(name=name, version=version, file=path.name, sha256=source.digest, size=size, origin=source.origin)


def _on_this_machine(line: str, request: LockRequest, local: Mapping[str, LocalPackage], mirrors: Mirrors) -> str:
    """Return a requirement as uv takes it here: with the path of a package that no index has."""
    requirement = Requirement(line)
    name = canonicalize_name(requirement.name)
    package = local.get(name)
    if package is None or (package.kind == "commit" and name in request.no_deps):
        return line  # nothing is asked of its source
    path = git_repositories.fetch(package, mirrors) / package.subfolder if package.kind == "commit" else package.path
    requirement.url = path.resolve().as_uri()
    return str(requirement)


def _packages(
    request: LockRequest, local: Mapping[str, LocalPackage], index: str, mirrors: Mirrors
) -> Sequence[Package]:
    """Return the packages of uv's pylock.toml for `request`, each with its fitting wheels.

    If the setup.py of a release cannot be run, its requirements are read from its source, and uv is asked again.
    """
    # uv asks a package of no index for its version, unless it has one here; which one is no matter.
    metadata: dict[tuple[str, str], tuple[str, ...]] = dict.fromkeys(_kept_packages(request), ())
    metadata |= dict.fromkeys(((name, "0" if name in local else "") for name in request.no_deps), ())
    while True:
        try:
            packages = _compile(request, local, index, mirrors, metadata)
            return [package for package in packages if f"{package.name}=={package.version}" not in request.installed]
        except _SetupFailedError as failed:
            if failed.release in metadata:
                raise RdmaImagesError(
                    f"{' '.join(failed.release)}: its requirements are unknown\nname another version"
                ) from None
            metadata[failed.release] = source_requirements(*failed.release, index, mirrors)


def _kept_packages(request: LockRequest) -> Iterator[tuple[str, str]]:
    """Yield name and version of installed packages that stay; one with a new extra is resolved again."""
    with_extras = {canonicalize_name(line.name) for line in map(Requirement, request.requirements) if line.extras}
    for line in request.installed:
        name, _, version = line.partition("==")
        if name not in with_extras:
            yield name, version


def _empty_wheel(name: str, version: str) -> tuple[str, bytes]:
    """Return a wheel for uv to find: a maker's own builds, such as NVIDIA's of torch, are on no index."""
    stem, content = f"{name.replace('-', '_')}-{version}", io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return f"{stem}-py3-none-any.whl", content.getvalue()


def _compile(
    request: LockRequest,
    local: Mapping[str, LocalPackage],
    index: str,
    mirrors: Mirrors,
    metadata: Mapping[tuple[str, str], Sequence[str]],
) -> Sequence[Package]:
    """Run `uv pip compile` once.

    `metadata` has the requirements of releases that uv must not ask, by name and version ("" for every version).

    Raises:
        _SetupFailedError: The setup.py of a release imports what it does not declare.
        NoSolutionError: The packages do not go together.
    """
    options = ["--overrides", "overrides.in", "--constraints", "constraints.in", "--config-file", "uv.toml"]
    options += ["--find-links", "."] if request.installed else []
    if not request.sources:
        options += ["--only-binary", ":all:", *(f"--no-binary={name}" for name in local)]
    options += ["--python-version", request.python]
    options += ["--python-platform", f"{MACHINES[request.platform]}-manylinux_{request.glibc.replace('.', '_')}"]
    known = (
        f'[[dependency-metadata]]\nname = "{name}"\n'
        + (f'version = "{version}"\n' if version else "")
        + f"requires-dist = {json.dumps(requires)}\n"
        for (name, version), requires in metadata.items()
    )
    beside: dict[str, str | bytes] = {
        "requirements.in": "\n".join(_on_this_machine(line, request, local, mirrors) for line in request.requirements),
        "overrides.in": "\n".join(request.overrides),
        "constraints.in": "\n".join((*request.constraints, *request.installed)),
        "uv.toml": "".join(known),
        **dict(_empty_wheel(name, version) for name, version in _kept_packages(request)),
    }
    try:
        return index_queries.compile_requirements(f"locking {request.key}", beside, options, index, mirrors)
    except index_queries.NoFittingReleaseError as error:
        _raise_setup_error(error.words)
        raise NoSolutionError(request, error.words) from None


class _SetupFailedError(Exception):
    """A release whose setup.py cannot be run to learn what it requires."""

    def __init__(self, name: str, version: str) -> None:
        self.release = (name, version)
        super().__init__(name, version)


def _raise_setup_error(words: str) -> None:
    """Raise if uv could not run a package's setup.py, as it imports an undeclared module, such as torch."""
    failed = re.search(r"Failed to build `(\S+) @ file://", words)
    release = re.search(r"Failed to build `([\w.-]+)==(\S+)`", words)
    module = re.search(r"No module named '([\w.]+)'", words)
    if release and module:
        raise _SetupFailedError(release[1], release[2])
    if failed and module:
        raise RdmaImagesError(
            f"{failed[1]}: its setup.py imports {module[1]}, and is run to learn what the package requires\n"
            "write name, version and dependencies under [project] in its pyproject.toml, or give it no-deps in "
            "package-options: then setup.py runs only where the package is built, beside the image's torch"
        )


def source_requirements(name: str, version: str, index: str, mirrors: Mirrors) -> tuple[str, ...]:
    """Return the requirements stated in a release's source. Raises RdmaImagesError."""
    source = index_queries.find_release(name, version, index, mirrors).sdist
    if source is None:
        raise RdmaImagesError(f"{name} {version}: the package index has no source of it\nname another version")
    address = source.url or str(source.path)
    try:
        with web.request("GET", address, mirrors, SOURCE_TIMEOUT_SECONDS) as response:
            return read_requirements(io.BytesIO(response.content))
    except (web.StatusError, requests.RequestException) as error:
        raise RdmaImagesError(f"{address}: {web.describe_error(error, mirrors)}\ntry again") from None
    except (tarfile.TarError, OSError, StopIteration):
        raise RdmaImagesError(
            f"{name} {version}: its source does not say what it requires\nname another version"
        ) from None


def read_requirements(archive: io.BytesIO) -> tuple[str, ...]:
    """Return the requirements in a source's PKG-INFO, or in setuptools' list."""
    with tarfile.open(fileobj=archive, mode="r:gz") as source:
        texts = {
            member.name: (source.extractfile(member) or io.BytesIO()).read().decode(errors="replace")
            for member in source
            if member.isfile() and (METADATA.fullmatch(member.name) or LISTS.fullmatch(member.name))
        }
    metadata = HeaderParser().parsestr(next(texts[name] for name in texts if METADATA.fullmatch(name)))
    if listed := metadata.get_all("Requires-Dist"):
        return tuple(listed)
    lines = [line.strip() for name, text in texts.items() if LISTS.fullmatch(name) for line in text.splitlines()]
    sections = next((number for number, line in enumerate(lines) if line.startswith("[")), len(lines))
    return tuple(line for line in lines[:sections] if line)
