"""Wheels compiled from source, kept in the state folder for all images."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from packaging.utils import parse_wheel_filename

from rdma_images.build.build_spec import BuildSpec
from rdma_images.components.base import BaseDetails
from rdma_images.core import files, paths
from rdma_images.core.disk_space import GB
from rdma_images.core.errors import RdmaImagesError, first_line
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.inputs.wheels import Wheel
from rdma_images.registry import registry_errors
from rdma_images.registry.client import EMPTY, TITLE, Descriptor, Repository, artifact_manifest
from rdma_images.render.bake import source_stage

MAX_BYTES = 8 * GB  # of all wheels; the least recently used go first
STAGES = ("cuda-toolkit", "source-builder")  # of a Dockerfile, on which every compiled wheel depends

Compile = Callable[[str, str, Path], None]
"""Builds a stage of an image, by the image's id and the stage's name, into a folder."""
# A wheel in a registry, for other machines: an artifact with one file, under a tag with the key of what decided it.
ARTIFACT = "application/vnd.rdma-images.wheel"


def provide_source_wheels(
    specs: Sequence[BuildSpec],
    stand_ins: Mapping[str, Sequence[str]],
    compile_stage: Compile,
    progress: Progress = silent,
    repository: Repository | None = None,
) -> dict[str, dict[str, str]]:
    """Return the folders of wheels from source, by image id and stage.

    Args:
        stand_ins: The sources that stand-ins replace, by the image's id: a package may be compiled against them.
        compile_stage: Compiles what is not kept, one package after the other.
        progress: Gets a line for each package.
        repository: Where other machines find what is compiled here, and this one what they compiled.

    Raises:
        RdmaImagesError: A package cannot be compiled.
    """
    wheels = _SourceWheels(compile_stage, progress, repository)
    contexts = {
        spec.image.id: {
            source_stage(wheel.name): str(wheels.folder(spec, wheel, stand_ins[spec.image.id]))
            for wheel in _from_source(spec)
        }
        for spec in specs
    }
    _trim({Path(folder) for by_stage in contexts.values() for folder in by_stage.values()})
    return contexts


def are_kept(spec: BuildSpec, stand_ins: Sequence[str]) -> bool:
    """Return whether this machine has every wheel from source of an image, so that nothing is compiled for it."""
    return all(_has_wheel(root() / wheel_key(spec, wheel, stand_ins)) for wheel in _from_source(spec))


def _from_source(spec: BuildSpec) -> tuple[Wheel, ...]:
    return tuple(wheel for wheel in spec.lock.sources if wheel.is_source)


def wheel_key(spec: BuildSpec, source: Wheel, stand_ins: Sequence[str]) -> str:
    """Return the digest of everything that a wheel from source depends on.

    The source, how the Dockerfile compiles it (toolkit, tools, architectures, variables), torch, Python and the base.
    """
    dockerfile = spec.dockerfile.read_text(encoding="utf-8")
    decides: dict[str, object] = {
        "stages": [_stage(dockerfile, name) for name in (*STAGES, f"build-{source.name}")],
        "torch": [wheel.sha256 for wheel in spec.lock.wheels if wheel.name == "torch"],
        "python": spec.image.version("python"),
        "platform": spec.image.platform,
        "base": spec.image.details(BaseDetails).stand_in or spec.image.axes["base"],
        "rehearsed": sorted(stand_ins),
    }
    if files_digest := spec.packages.get(source.name):
        decides["files"] = files_digest
    return sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def root() -> Path:
    """Return the folder of all wheels from source."""
    return paths.state_folder() / "source-wheels"


@dataclass(frozen=True)
class _SourceWheels:
    """Wheels from source: kept in this machine's folder or the registry, or compiled."""

    compile_stage: Compile
    progress: Progress
    repository: Repository | None

    def folder(self, spec: BuildSpec, source: Wheel, stand_ins: Sequence[str]) -> Path:
        """Return the folder of a source's wheel, which is there afterwards."""
        folder = root() / wheel_key(spec, source, stand_ins)
        if _has_wheel(folder):
            self.progress(f"{source.title}: compiled before, taken from {folder}")
        else:
            self._make(folder, spec, source)
        os.utime(folder)
        _set_distinct_mtime(folder)
        return folder

    def _make(self, folder: Path, spec: BuildSpec, source: Wheel) -> None:
        """Fetch or compile a wheel into a new folder."""
        unfinished, tag = folder.with_name(f".{folder.name}"), f"wheel-{folder.name[:40]}"
        for leftover in root().glob(".*"):  # of killed builds; no other runs, by the lock of builds
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            with files.raising_file_error(unfinished):
                unfinished.mkdir(parents=True)
            is_remote = self.repository and fetch(tag, self.repository, unfinished, self.progress)
            if not is_remote:
                for damaged in unfinished.iterdir():
                    damaged.unlink()
                hours = spec.image.core_hours.get(source.name)
                self.progress(f"compiling {source.title}" + (f", some {hours} hours of one core" if hours else ""))
                self.compile_stage(spec.image.id, source_stage(source.name), unfinished)
            if not _has_wheel(unfinished):
                fix = f"see that its source builds one: pip wheel {source.origin or source.name}"
                raise RdmaImagesError(f"{source.title}: its build ended without a wheel\n{fix}")
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
            if self.repository and not is_remote:
                send(tag, self.repository, folder, self.progress)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _set_distinct_mtime(folder: Path) -> None:
    """Give a wheel file a modification time of its own, derived from its key.

    The builds of a package leave all its wheels with one time, and BuildKit takes a file with the name, size and time
    of an earlier one for that one.
    """
    for wheel in folder.glob("*.whl"):
        seconds = int(folder.name[:7], 16)
        os.utime(wheel, (seconds, seconds))


def _has_wheel(folder: Path) -> bool:
    return any(folder.glob("*.whl"))


def _stage(dockerfile: str, name: str) -> str:
    """Return the instructions of one stage of a Dockerfile; "" where it has no such stage."""
    match = re.search(rf"^FROM \S+ AS {re.escape(name)}\n.*?(?=\n\n(?:# .*\n)*FROM |\Z)", dockerfile, re.M | re.S)
    return match[0] if match else ""


def _trim(taken: Container[Path]) -> None:
    """Remove the least recently used wheels beyond MAX_BYTES, and none of the folders that the build has taken."""
    folders = sorted(files.list_folder(root()), key=lambda folder: folder.stat().st_mtime)
    sizes = {folder: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}
    for folder in folders:
        if folder not in taken and sum(sizes.values()) > MAX_BYTES:
            shutil.rmtree(folder, ignore_errors=True)
            del sizes[folder]


def fetch(tag: str, repository: Repository, folder: Path, progress: Progress = silent) -> bool:
    """Write the wheel under a tag into a folder. Return False if the registry has no usable one."""
    try:
        (wheel,) = repository.manifest(tag).layers()
        name = wheel.annotations[TITLE]
        parse_wheel_filename(name)
        if "/" in name:
            raise ValueError(f"{name} is no file's name")
        registry_errors.retry(partial(repository.save_blob, wheel.digest, folder / name), progress=progress)
    except registry_errors.MissingError:
        return False
    except (registry_errors.RegistryError, ValueError, LookupError) as error:
        progress(f"{repository.ref}:{tag}: {first_line(error)}; the wheel is compiled here")
        return False
    progress(f"{name}: compiled before, {format_megabytes(wheel.size)} taken from {repository.ref}")
    return True


def send(tag: str, repository: Repository, folder: Path, progress: Progress = silent) -> None:
    """Send the wheel in a folder, then its tag; a registry that does not take it is only reported."""
    (wheel,) = folder.glob("*.whl")
    try:
        registry_errors.retry(partial(_send_wheel, tag, repository, wheel), progress=progress)
    except registry_errors.RegistryError as error:
        progress(f"{first_line(error)}; other machines compile this wheel themselves")
    else:
        progress(f"{wheel.name}: sent to {repository.ref}")


def _send_wheel(tag: str, repository: Repository, wheel: Path) -> None:
    with files.raising_file_error(wheel), wheel.open("rb") as content:
        digest = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
        size = wheel.stat().st_size
    repository.put_file(digest, wheel)
    repository.put_blob(EMPTY)
    repository.put_manifest(tag, artifact_manifest(Descriptor(ARTIFACT, digest, size, {TITLE: wheel.name})))
