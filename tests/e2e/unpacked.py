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

MPI_PACKAGES = (
    *("openmpi-bin", "openmpi-common", "libopenmpi3", "libevent-core-2.1-7", "libevent-pthreads-2.1-7", "libhwloc15"),
    *("libpmix2", "libmunge2", "openssh-server", "openssh-client", "libwrap0"),
)


def tree(name: str, packages: tuple[str, ...]) -> Path:
    """Return the packages' files, kept in the state folder between runs."""
    folder = paths.state_folder() / name
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "-qq", *packages], cwd=folder, check=True)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, folder / "root"], check=True)
            package.unlink()
        (folder / "complete").touch()
    return folder / "root"
