"""The exact wheels of an image, in locks/python/: names, versions, hashes and sizes."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version as installed_version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rdma_images.components.nccl import NcclDetails
from rdma_images.core import atomic, files, paths, yaml_file
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Image, Platform
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress
from rdma_images.facts import gpu_software
from rdma_images.inputs.project import Project
from rdma_images.inputs.wheels import Lock, LockRequest, Tool
from rdma_images.plan import planner

if TYPE_CHECKING:
    from rdma_images.inputs.mirrors import Mirrors

# What builds a Python package from its source, beside torch and a compiler; each has a wheel for every python 3.
BUILD_TOOLS = (
    "cmake",
    "flit-core",
    "hatchling",
    "ninja",
    "packaging",
    "poetry-core",
    "psutil",
    "pybind11",
    "scikit-build-core",
    "setuptools",
    "setuptools-scm",
    "wheel",
)
PLAIN_TEXT = re.compile(r"[\n -\[\]-~]*")  # ASCII without a backslash: no string of it has a control character
OLDEST_PYTHON = "3.10"  # of the bases; stands for all where a wheel is for every python 3


class NotLockedError(RefusedError):
    """An image whose requirements have no lock yet."""


def lock_request(image: Image) -> LockRequest:
    """Return what an image requires from the package index.

    They are torch, an NCCL that is not torch's own, and the target's own packages.
    """
    requirements: list[str] = []
    overrides: list[str] = []
    torch = None if image.onto else image.components.get("pytorch")  # what an existing image has stays
    nccl = image.components.get("nccl")
    if torch:
        requirements.append(f"torch=={torch.version}")
    if nccl and nccl.decided_by != "--onto" and not (torch and nccl.decided_by == "pytorch"):
        (overrides if torch else requirements).append(f"{image.details(NcclDetails).package}=={nccl.version}")
    requirements += sorted(set(image.python_packages))
    if not requirements:
        return LockRequest(requirements=(), python=OLDEST_PYTHON, platform=image.platform)
    installed = image.onto.base.python_packages if image.onto else {}
    replaced = _replaced(installed, requirements)
    return LockRequest(
        requirements=tuple(requirements),
        overrides=tuple(overrides),
        constraints=tuple(sorted({*image.constraints, *_limits(image, replaced)})),
        sources=image.source_packages,
        no_deps=tuple(sorted(image.no_deps)),
        installed=tuple(f"{name}=={installed[name]}" for name in sorted(installed.keys() - replaced)),
        python=".".join(image.version("python").split(".")[:2]),
        platform=image.platform,
    )


def _replaced(installed: Mapping[str, str], requirements: Iterable[str]) -> set[str]:
    """Return the installed packages that `requirements` want in other versions."""
    named = [(str(canonicalize_name(line.name)), line.specifier) for line in map(Requirement, requirements)]
    return {
        name
        for name, specifier in named
        if name in installed and not specifier.contains(installed[name], prereleases=True)
    }


def _limits(image: Image, replaced: Container[str]) -> Iterator[str]:
    """Yield what kept packages require of replaced ones, but not of NCCL, whose version the plan chooses."""
    for name, lines in image.onto.base.python_requires.items() if image.onto else ():
        for requirement in map(Requirement, () if name in replaced else lines):
            other = canonicalize_name(requirement.name)
            if other in replaced and not gpu_software.WHEEL_NAME.fullmatch(other):
                yield f"{other}{requirement.specifier}"


def lock_path(request: LockRequest, folder: Path | None = None) -> Path:
    """Return the lock file of a request."""
    return (folder or paths.LOCKS) / "python" / f"{request.key}.json"


def _readable_lock(file: Path) -> Path:
    """Return the user's lock file, or the one that the wheel brought."""
    is_own = file.is_relative_to(paths.PROJECT / "locks")
    return paths.find_data(str(file.relative_to(paths.PROJECT))) if is_own else file


def exists(request: LockRequest) -> bool:
    """Return whether a request has a lock file, whatever its content."""
    return files.exists(_readable_lock(lock_path(request)))


def problem(image: Image) -> str | None:
    """Return why an image cannot be built from its lock; None where it has none, or one that fits."""
    try:
        read_image_lock(image)
    except NotLockedError:
        return None
    except RdmaImagesError as error:
        return str(error)
    return None


def read_image_lock(image: Image, folder: Path | None = None) -> Lock:
    """Return the lock of an image.

    Raises NotLockedError when there is none, and RefusedError when the file does not answer what the image asks; the
    fix of both is `invoke lock`.
    """
    lock = read_lock(lock_request(image), folder)
    _require_agreement(lock, image, folder)
    return lock


def read_lock(request: LockRequest, folder: Path | None = None) -> Lock:
    """Return the lock of a request. Raise like `read_image_lock`."""
    if not request.requirements:
        return Lock(request=request, wheels=())
    file = _readable_lock(lock_path(request, folder))
    lock = _content(file)
    if lock.request != request:
        asked = ", ".join((*request.requirements, *request.overrides))
        raise RefusedError(f"{file}: locked for other packages or another base than {asked}\nrun `{COMMAND} lock`")
    required = {canonicalize_name(Requirement(line).name) for line in request.requirements} - {
        line.partition("==")[0] for line in request.installed
    }
    if missing := sorted(required - {wheel.name for wheel in lock.wheels}):
        raise RefusedError(f"{file}: has no wheel of {', '.join(missing)}\nrun `{COMMAND} lock`")
    return lock


def _content(file: Path) -> Lock:
    """Return the content of a lock file. Raises NotLockedError for none."""
    if not files.exists(file):
        raise NotLockedError(f"{file}: no such lock\nrun `{COMMAND} lock`")
    with suppress(ValueError, files.FileError):
        text = files.read_text(file)
        if PLAIN_TEXT.fullmatch(text):
            return Lock.model_validate_json(text)
    return yaml_file.load(file, Lock)  # which says what is wrong, with its line; JSON takes a tenth of its time


def create_lock(image: Image, mirrors: "Mirrors", folder: Path | None = None) -> Lock:
    """Resolve an image's wheels; write and return the lock. Raises as `resolve.resolve_wheels`."""
    request = lock_request(image)
    if not request.requirements:
        return Lock(request=request, wheels=())
    resolved = _resolve(request, mirrors)
    _require_agreement(resolved, image, folder)
    return _written(resolved, lock_path(request, folder))


def lock_toolkit(request: LockRequest, mirrors: "Mirrors", folder: Path | None = None) -> Lock:
    """Resolve a compiler; write and return the lock. Raises as `resolve.resolve_wheels`."""
    return _written(_resolve(request, mirrors), lock_path(request, folder))


def remove_superseded(images: Iterable[Image], project: Project, progress: Progress) -> None:
    """Remove the locks that earlier requirements of images left, which were locked just now, and say so.

    A lock whose packages any image of the matrix asks for stays, whatever its torch.
    """
    with suppress(RefusedError):  # of another target, which its own plan says
        everything = planner.plan(project.matrix, project.facts, all_rows=True).images
        asked_for = {lock_request(other).packages for other in (*images, *everything)}
        # To one image other targets are added with other options.
        current = {lock_request(image).without_packages for image in images if not image.onto}
        for file in files.list_folder(paths.LOCKS / "python"):
            with suppress(RdmaImagesError):
                earlier = _content(file).request
                if earlier.packages not in asked_for and earlier.without_packages in current:
                    file.unlink()
                    progress(
                        f"removed {paths.display_path(file)}: no target of matrix.yaml asks for its packages any more"
                    )


def toolkit_request(image: Image) -> LockRequest:
    """Return the requirements for the compiler that builds parts of an image."""
    # NVIDIA's wheels are for every python 3: one lock then serves all bases.
    return LockRequest(requirements=image.toolkit, python=OLDEST_PYTHON, platform=image.platform)


def tools(folder: Path | None = None) -> dict[str, Tool]:
    """Return the builder's own tools by name: uv, which installs the wheels, and BUILD_TOOLS.

    For every platform at once, because the builder's need not be the image's. Raises NotLockedError without a lock.
    """
    locked = [read_tools(platform, folder) for platform in get_args(Platform)]
    names = {wheel.name: wheel.version for lock in locked for wheel in lock.wheels}
    return {
        name: Tool(
            name=name,
            version=version,
            hashes=tuple(wheel.sha256 for lock in locked for wheel in lock.wheels if wheel.name == name),
        )
        for name, version in names.items()
    }


def read_tools(platform: Platform, folder: Path | None = None) -> Lock:
    """Return the lock of the builder's tools for one platform. Raises as `tools`."""
    file = _readable_lock(tools_path(platform, folder))
    lock = _content(file)
    if missing := sorted({"uv", *BUILD_TOOLS} - {wheel.name for wheel in lock.wheels}):
        raise NotLockedError(f"{file}: has no {', '.join(missing)}\nrun `{COMMAND} lock`")
    return lock


def lock_tools(platform: Platform, mirrors: "Mirrors") -> Lock:
    """Lock BUILD_TOOLS and the uv that is installed here: what resolved also installs."""
    # uv's wheel is also for every python 3.
    requirements = (f"uv=={installed_version('uv')}", *BUILD_TOOLS)
    request = LockRequest(requirements=requirements, python=OLDEST_PYTHON, platform=platform)
    return _written(_resolve(request, mirrors), tools_path(platform))


def tools_path(platform: Platform, folder: Path | None = None) -> Path:
    """Return where the lock of the builder's tools is."""
    return (folder or paths.LOCKS) / "python" / f"tools-{platform.replace('/', '-')}.json"


def _resolve(request: LockRequest, mirrors: "Mirrors") -> Lock:
    """Return the answer of the package index that builds use, too."""
    from rdma_images.inputs import resolve, sources  # here, because their imports take as long as having nothing to do

    return resolve.resolve_wheels(request, *sources.index_for(mirrors))


def _written(lock: Lock, file: Path) -> Lock:
    atomic.write(file, lock.text())
    return lock


def _require_agreement(lock: Lock, image: Image, folder: Path | None) -> None:
    """Raise unless the lock has the planned torch and NCCL, all source packages, and allowed files alone."""
    file = lock_path(lock.request, folder)
    for error in chain(
        _unused_names(lock, image), _wrong_wheels(lock, image, file), _wrong_versions(lock, image, file)
    ):
        raise error


def _unused_names(lock: Lock, image: Image) -> Iterator[RdmaImagesError]:
    """Yield an error for the packages that a field of the target names, and that are none of its own."""
    own_builds = (name for name, build in image.source_builds.items() if build.is_own)
    named = {"source-packages": image.source_packages, "package-options": (*image.no_deps, *own_builds)}
    locked = {wheel.name for wheel in lock.wheels}
    for field, names in named.items():
        if unused := [name for name in names if canonicalize_name(name) not in locked]:
            yield RefusedError(
                f"target {image.target}: {field} names {', '.join(unused)}, which none of its packages needs\n"
                "remove it there, or add it to python-packages"
            )


def _wrong_wheels(lock: Lock, image: Image, file: Path) -> Iterator[RdmaImagesError]:
    """Yield an error for a wheel that was to be built here, and for one that the requirements' hashes do not allow."""
    for wheel in lock.wheels:
        build, allowed = image.source_builds.get(wheel.name), image.hashes.get(wheel.name)
        if build and build.is_own and not wheel.is_source:
            yield RefusedError(
                f"target {image.target}: package-options has env or a patch for {wheel.name}, which comes as a wheel\n"
                "to build it here, write NAME @ git+https://HOST/REPOSITORY@COMMIT, or ./PATH, in python-packages"
            )
        if allowed and wheel.sha256 and wheel.sha256 not in allowed:
            yield RefusedError(
                f"{file}: {wheel.file} has the sha256 {wheel.sha256}, which the requirements of {image.target} do not "
                "name\nfind out which of the two is right; an index may have been changed"
            )


def _wrong_versions(lock: Lock, image: Image, file: Path) -> Iterator[RdmaImagesError]:
    """Yield an error for another torch or NCCL than the planned one."""
    versions = {wheel.name: wheel.version for wheel in lock.wheels}
    torch, locked = image.components.get("pytorch"), versions.get("torch")
    if torch and locked and Version(locked).public != Version(torch.version).public:
        yield RefusedError(f"{file}: has torch {locked}, and torch {torch.version} is planned\nrun `{COMMAND} lock`")
    if not lock.wheels or "nccl" not in image.components:
        return
    bundled = {name: version for name, version in versions.items() if gpu_software.WHEEL_NAME.fullmatch(name)}
    is_kept = image.onto and not bundled  # the NCCL of the image below
    if not is_kept and bundled != {image.details(NcclDetails).package: image.version("nccl")}:
        found = ", ".join(f"{name} {version}" for name, version in sorted(bundled.items())) or "no NCCL"
        yield RdmaImagesError(
            f"{file}: the wheels bring {found}, but {image.id} is planned with {image.details(NcclDetails).package} "
            f"{image.version('nccl')}\ncorrect nccl of this torch in facts/torch.yaml"
        )
