"""Check that a source tarball is the release that its source names, before anything is built from it."""

import re
import tarfile
import zlib
from pathlib import Path

from rdma_images import components
from rdma_images.core import versions
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.pipeline import Source

# Autoconf writes both near the beginning of every configure.
_VERSION = re.compile(rb"^PACKAGE_VERSION='([^'\n]*)'$", re.MULTILINE)
MOST_FILES = 20_000  # the largest release, 1.21.1, has 763
CONFIGURE_READ = 1 << 20  # bytes of configure to search: the version is in the first 25,000


class TarballError(RdmaImagesError):
    """The file is not the release tarball that its name promises."""


def check(source: Source, file: Path, address: str) -> None:
    """Raise TarballError, naming the problem, unless `file` is a release tarball of the source's version.

    `address` is where it was downloaded. Components without a `configure` are not checked.
    """
    component = components.BY_NAME.get(source.component)
    if not (component and component.has_configure):
        return
    version = source.id.removeprefix(f"{source.component}-")
    fix = f"\ntake the release tarball of {version}: {source.upstream}"
    try:
        problem = _find_problem(version, file)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise TarballError(f"{source.id}: {address} is no gzip-compressed tarball: {error}{fix}") from None
    if problem:
        raise TarballError(f"{source.id}: {address} {problem}{fix}")


def _find_problem(version: str, file: Path) -> str | None:
    """Return the problem of the tarball, as the end of a sentence; None where there is none."""
    names: set[str] = set()
    with tarfile.open(file, "r:gz") as archive:
        for number, member in enumerate(archive):
            _, _, name = member.name.removeprefix("./").partition("/")
            names.add(name)
            if name == "configure" and (opened := archive.extractfile(member)):
                return _version_problem(version, opened.read(CONFIGURE_READ))
            if number == MOST_FILES:
                return f"has no configure among its first {MOST_FILES} files"
    tree = "configure.ac" in names
    return f"has no configure{': it is a copy of the repository, which has no configure' if tree else ''}"


def _version_problem(version: str, configure: bytes) -> str | None:
    """Return the problem of a configure with another version, or none; None where the version is right."""
    match = _VERSION.search(configure)
    stated = match[1].decode("utf-8", "replace") if match else ""
    if not stated:
        return "has a configure that states no version"
    try:
        same = versions.key(stated) == versions.key(version)
    except ValueError:  # a build from the repository: "git-2daf7d30"
        same = False
    return None if same else f"is of version {stated}, by its configure"
