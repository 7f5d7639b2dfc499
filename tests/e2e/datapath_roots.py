"""Real root filesystems with RDMA packages for the data path, whole and broken."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from rdma_images.core import locking
from rdma_images.datapath.disk import ImageDisk, write_disk
from rdma_images.datapath.guest_files import GuestFiles
from rdma_images.engine.debian import debian_packages, host_apt

PACKAGES = (
    *("ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "libfabric-bin", "libpam-modules", "login"),
    *("openmpi-bin", "perftest"),
)
LIBRARIES = "usr/lib/x86_64-linux-gnu"


def bootstrap(folder: Path, packages: tuple[str, ...]) -> Path:
    """Return a root filesystem of Debian 13 with these packages installed in `folder`."""
    tool = debian_packages.fetch(("mmdebstrap",), "trixie", debian_packages.cache_path("packages", "mmdebstrap"))
    with locking.hold("apt-trixie", "a test's bootstrap"):
        apt = debian_packages.updated_apt("trixie", debian_packages.cache_path("apt", "trixie"))
    path = os.pathsep.join((str(tool / "usr/bin"), os.environ["PATH"], "/usr/sbin", "/sbin"))
    command = [str(tool / "usr/bin/mmdebstrap"), "--quiet", "--variant=essential", f"--include={','.join(packages)}"]
    command += ["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*"]
    command += ["--aptopt=" + line for line in host_apt.acquire_settings().splitlines()]
    environ = {**os.environ, "PATH": path, "DPKG_FORCE": "downgrade,security-mac,unsafe-io"}  # as bootstrap.py has it
    subprocess.run([*command, "trixie", str(folder), str(apt.sources)], check=True, env=environ)
    return folder


@contextlib.contextmanager
def folder_disk(root: Path, guest_files: GuestFiles) -> Iterator[ImageDisk]:
    """Yield the disk of a root filesystem in a folder."""
    descriptor = write_disk(guest_files.mkfs, root)
    try:
        yield ImageDisk(descriptor)
    finally:
        os.close(descriptor)


def copy(root: Path, folder: Path) -> Path:
    """Return a copy that shares its files: replace those that change, do not write to them."""
    shutil.copytree(root, folder, symlinks=True, copy_function=os.link, ignore=shutil.ignore_patterns("dev"))
    return folder


def without_provider(root: Path) -> None:
    """Remove the adapter's provider."""
    (root / LIBRARIES / "libibverbs/librxe-rdmav34.so").unlink()


def without_another_provider(root: Path) -> None:
    """Remove EFA's provider: no exchange here needs it."""
    (root / LIBRARIES / "libibverbs/libefa-rdmav34.so").unlink()


def with_wrong_suffix(root: Path) -> None:
    """Name providers as those of an rdma-core with another private interface."""
    for path in (root / LIBRARIES / "libibverbs").glob("lib*-rdmav34.so"):
        path.rename(path.with_name(path.name.replace("rdmav34", "rdmav25")))


def without_rdmacm(root: Path) -> None:
    """librdmacm removed."""
    for path in (root / LIBRARIES).glob("librdmacm.so*"):
        path.unlink()


def without_libpci(root: Path) -> None:
    """Remove what only perftest needs: a library that an apt cleaned up too well took along."""
    for path in (root / LIBRARIES).glob("libpci.so*"):
        path.unlink()


def without_libpsm2(root: Path) -> None:
    """Remove what libfabric itself needs, whichever of its providers is asked for."""
    for path in (root / LIBRARIES).glob("libpsm2.so*"):
        path.unlink()


def with_limited_memlock(root: Path) -> None:
    """Let logins lock 64 KiB."""
    limits = root / "etc/security/limits.d/90-small.conf"
    limits.write_text("".join(f"{who} {kind} memlock 64\n" for who in ("*", "root") for kind in ("soft", "hard")))


def with_another_libibverbs(root: Path) -> None:
    """Put Debian 12's libibverbs where the loader looks first."""
    older = debian_packages.fetch(("libibverbs1",), "bookworm", root.with_name("older"))
    shutil.copyfile(
        next((older / LIBRARIES).glob("libibverbs.so.1.14.*")), root / "usr/local/lib/libibverbs.so.1.14.44.0"
    )
    subprocess.run(["chroot", root, "/sbin/ldconfig"], check=True)


def without_libibverbs(root: Path) -> None:
    """No libibverbs at all."""
    for path in (root / LIBRARIES).glob("libibverbs.so*"):
        path.unlink()


OVER_LIBFABRIC = ("libfabric-tcp", "libfabric-msg", "libfabric-rdm", "mpi")

# What is broken, which checks find it and what each must say.
BROKEN: dict[Callable[[Path], None], dict[str, str]] = {
    without_provider: {"providers": "rxe: missing", "device": "couldn't load driver 'librxe-rdmav34.so'"},
    without_another_provider: {"providers": "efa: missing"},
    with_wrong_suffix: {"providers": "only as -rdmav25.so, for another libibverbs", "device": "librxe-rdmav34.so"},
    without_rdmacm: dict.fromkeys(("rdma-cm", "perftest", *OVER_LIBFABRIC), "librdmacm.so.1: cannot open"),
    without_libpci: {"perftest": "libpci.so.3: cannot open"},
    without_libpsm2: dict.fromkeys(OVER_LIBFABRIC, "libpsm2.so.2: cannot open"),
    with_limited_memlock: {"memlock": "64 KiB", "rc-pingpong": "Couldn't register MR"},
    with_another_libibverbs: {"libibverbs": "beside it is another", "providers": "version IBVERBS_PRIVATE_34"},
    without_libibverbs: {"libibverbs": "gets none", "device": "libibverbs.so.1: cannot open"},
}
