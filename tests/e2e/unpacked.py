"""Debian's packages, unpacked and not installed, for tests that want the real programs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rdma_images.core import paths

needs = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("apt-get"),
    reason="real programs are unpacked from Debian's packages, as root",
)


def tree(name: str, packages: tuple[str, ...]) -> Path:
    """Return the packages' files, kept in the state folder between runs."""
    kept = paths.state_folder() / name
    if not (kept / "complete").exists():
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "-qq", *packages], cwd=kept, check=True)
        for package in kept.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, kept / "root"], check=True)
        (kept / "complete").touch()
    return kept / "root"
