"""The user's own files in an image: as one tar, as a build context of own stages, and as packages of no index.

The same files make the same tar, whatever their times and wherever they are.
"""

import hashlib
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from rdma_images.core import atomic, files, local_package, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import AddedFile, Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.inputs.wheels import Lock
from rdma_images.plan import target_files

if TYPE_CHECKING:
    from rdma_images.inputs.mirrors import Mirrors

NAME = "files.tar"  # beside the image's Dockerfile, which adds it
IGNORE = ".dockerignore"
ALWAYS_IGNORED = [".git", "build"]  # of a whole folder: its history, and what this tool writes
MAX_BYTES = 1 << 30  # bytes of a folder; data belongs on a volume
# Of a package's folder, too: what tools write beside its own files changes without a change of the code.
PACKAGE_IGNORED = ("**/.git", "**/__pycache__", "**/*.pyc", "**/*.egg-info", "**/.venv", "**/build")
CONTEXT = "project"  # the name by which a stage of the user's own takes files of the folder


def pack(image: Image) -> str | None:
    """Write the tar of an image's files beside its Dockerfile.

    Returns:
        the digest of the tar; None for an image to which no files are added.

    Raises:
        RefusedError: a file is not there, is no file, folder or link, or a folder is larger than `MAX_BYTES`.
    """
    if image.additions is None or not image.additions.files:
        return None
    path = paths.image_folder(image.id) / NAME
    with atomic.replacing(path) as temporary, files.raising_file_error():
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as archive:
            for entry in image.additions.files:
                for source, destination in _members(entry):
                    _add(archive, source, destination, entry)
        with temporary.open("rb") as written:
            return f"sha256:{hashlib.file_digest(written, 'sha256').hexdigest()}"


def uses_folder(dockerfile: str) -> bool:
    """Return whether a stage takes files of the user's folder, which is the context `CONTEXT`."""
    return re.search(rf"\bfrom={CONTEXT}\b", dockerfile) is not None


def folder_digest(folder: str, ignored: Sequence[str] = ()) -> str:
    """Return the digest of a folder's files, without the ignored ones. Raises RefusedError over `MAX_BYTES`."""
    digest = hashlib.sha256()
    with files.raising_file_error():
        for path, name in _members(AddedFile(os.path.normpath(folder), "/", (0, 0)), ignored):
            status = path.lstat()
            digest.update(f"{name}\0{stat.filemode(status.st_mode)}\0".encode())
            if stat.S_ISLNK(status.st_mode):
                digest.update(str(path.readlink()).encode())
            elif stat.S_ISREG(status.st_mode):
                with path.open("rb") as content:
                    digest.update(hashlib.file_digest(content, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def package_digests(image: Image, lock: Lock) -> dict[str, str]:
    """Return the digest of each package of no index, by name. Raises as `folder_digest`."""
    return {
        name: folder_digest(package.address, PACKAGE_IGNORED) if package.kind == "folder" else package.digest
        for name, package in _local_packages(image, lock).items()
    }


def package_contexts(image: Image, lock: Lock, mirrors: "Mirrors", progress: Progress = silent) -> dict[str, str]:
    """Return a folder of files for each of these packages, by context name; fetch commits."""
    from rdma_images.inputs import git_repositories  # here, because a plan fetches nothing

    staged = {}
    for name, package in _local_packages(image, lock).items():
        target = paths.image_folder(image.id) / "packages" / name
        shutil.rmtree(target, ignore_errors=True)
        if package.kind == "commit":
            target = git_repositories.fetch(package, mirrors, progress)
        elif package.kind == "folder":
            _copy_folder(package.address, target)
        else:
            with files.raising_file_error():
                target.mkdir(parents=True)
                shutil.copy(package.path, target)  # with a new time: BuildKit tells files by name, size and time
        staged[f"package-{name}"] = str(target)  # the context that the stage of its installation names
    return staged


def _local_packages(image: Image, lock: Lock) -> dict[str, local_package.LocalPackage]:
    """Return the image's installed packages that no index has, by name."""
    local = {wheel.name for wheel in lock.wheels if wheel.origin}
    packages = local_package.by_name(image.python_packages)
    return {name: package for name, package in packages.items() if name in local}


def _copy_folder(folder: str, target: Path) -> None:
    """Copy the files of a package to a new folder, except those that tools write beside them."""
    for path, name in _members(AddedFile(os.path.normpath(folder), "/", (0, 0)), PACKAGE_IGNORED):
        copy = target / name.lstrip("/")
        if path.is_dir() and not path.is_symlink():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy, follow_symlinks=False)


def _members(entry: AddedFile, ignored: Sequence[str] = ()) -> Iterator[tuple[Path, str]]:
    """Yield the files below `entry` with their paths in the image, sorted, folders first."""
    root = target_files.find_file(entry)
    if root.is_symlink() or not root.is_dir():
        yield root, entry.destination
        return
    from docker.utils.build import exclude_paths  # here, because it imports docker's whole client

    prefix = "" if entry.path == "." else f"{entry.path}/"
    file = paths.PROJECT / IGNORE
    lines = files.read_text(file).splitlines() if files.exists(file) else []
    own = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    names = sorted(exclude_paths(str(paths.PROJECT), [*ALWAYS_IGNORED, *own, *ignored]))
    included = [name for name in names if name and (name + "/").startswith(prefix)]
    if not included:
        raise RefusedError(f"{entry.path} of `files`: {IGNORE} leaves all of it out\ncorrect {IGNORE}, or remove it")
    if (size := sum((paths.PROJECT / name).lstat().st_size for name in included)) > MAX_BYTES:
        raise RefusedError(
            f"{root}: {format_megabytes(size)} of files, and an image takes {format_megabytes(MAX_BYTES)}\n"
            f"leave data out with {IGNORE}, and mount it when the image runs"
        )
    for name in included:
        below = PurePosixPath(name).relative_to(entry.path)
        yield paths.PROJECT / name, str(PurePosixPath(entry.destination) / below)


def _add(archive: tarfile.TarFile, source: Path, destination: str, entry: AddedFile) -> None:
    """Add a file, folder or link."""
    status = source.lstat()
    member = tarfile.TarInfo(destination.lstrip("/"))
    member.uid, member.gid = entry.owner
    is_executable = stat.S_ISDIR(status.st_mode) or bool(status.st_mode & stat.S_IXUSR)
    member.mode = 0o755 if is_executable else 0o644
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISLNK(status.st_mode):
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, str(source.readlink()), 0o777
        archive.addfile(member)
    elif stat.S_ISREG(status.st_mode):
        member.mode = int(entry.mode, 8) if entry.mode else member.mode
        member.size = status.st_size
        with source.open("rb") as content:
            archive.addfile(member, content)
    else:
        raise RefusedError(f"{source}: neither a file nor a folder\nleave it out, with a line in {IGNORE}")
