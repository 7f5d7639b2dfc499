"""The vendors' own files in RDMA_IMAGES_REAL_SOURCES, to compare stand-ins with."""

import os
import re
import tarfile
from pathlib import Path

import pytest

from rdma_images.core import versions

VARIABLE = "RDMA_IMAGES_REAL_SOURCES"
# Files by the names that the vendors give them; of nccl-tests, which has tags alone, by what GitHub's redirect says.
NAMES = {
    "aws-ofi-nccl": re.compile(r"aws-ofi-nccl-(\d[\d.]*)(?:-aws)?\.tar\.gz"),
    "nccl-tests": re.compile(r"(?:nccl-tests-|v)(\d[\d.]*)\.tar\.gz"),
    "efa-installer": re.compile(r"aws-efa-installer-(\d[\d.]*)\.tar\.gz"),
}


def tarballs(component: str) -> dict[str, Path]:
    """Return the tarballs of a component by version, the oldest first; {} where there is none."""
    folder = Path(os.environ.get(VARIABLE) or os.devnull)
    files = folder.iterdir() if folder.is_dir() else ()
    by_version = {match[1]: file for file in files if (match := NAMES[component].fullmatch(file.name))}
    return dict(sorted(by_version.items(), key=lambda item: versions.sort_key(item[0])))


def parameters(component: str) -> list[object]:
    """Return a test's parameters: every version at hand, else a skipped one."""
    if available := tarballs(component):
        return list(available)
    return [pytest.param("", marks=pytest.mark.skip(reason=missing(component)))]


def missing(component: str) -> str:
    """Return why no real part of this component is tested."""
    if not (folder := os.environ.get(VARIABLE)):
        return f"{VARIABLE} names no folder with the vendors' files"
    return f"{folder} has no file like {NAMES[component].pattern}"


def member(tarball: Path, name: str) -> str:
    """Return the text of a file inside the one folder of a tarball."""
    with tarfile.open(tarball) as archive:
        file = next((entry for entry in archive if entry.name.partition("/")[2] == name), None)
        content = archive.extractfile(file) if file else None
        assert content, f"{tarball.name} has no {name}"
        return content.read().decode()


def program(name: str) -> Path | None:
    """Return a vendor's program of that name; None where it is not there."""
    file = Path(os.environ.get(VARIABLE) or os.devnull) / name
    return file if os.access(file, os.X_OK) else None
