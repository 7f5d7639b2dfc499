"""Prepare all that guests are started with, from Debian's archive, once for a state folder."""

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rdma_images.core import locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.core.progress import Progress
from rdma_images.datapath import cpio, modules, packages, program
from rdma_images.debian import unpacked

# The folders a guest's first process mounts on or writes to.
MOUNT_POINTS = ("proc", "sys", "dev", "base", "upper", "image", "task", "tmp")

# What guests run of ours, by path in the first root filesystem; "outside" is what the image's programs see of it.
SCRIPTS = ("init", "outside/bin/survey", "outside/bin/rsh")
LINKS = {"outside/bin/sh": "busybox"}


@dataclass(frozen=True)
class Kit:
    """What a guest needs that does not depend on the image.

    The commands are starts of command lines; `kernel` and `initramfs` are files.
    """

    qemu: tuple[str, ...]
    mkfs: tuple[str, ...]  # mkfs.erofs
    tar: tuple[Path, ...]  # GNU tar after its loader and libraries, to be carried elsewhere
    kernel: Path
    initramfs: Path


def prepare(progress: Progress) -> Kit:
    """Return the kit, downloaded and made where it is missing. Raises RdmaImagesError for a silent archive."""
    folder = state_folder() / "datapath"
    with locking.hold("datapath-kit", "preparing the emulator", progress):
        if not unpacked.fetched(folder / "programs"):
            progress("downloading QEMU, a kernel and a few tools from Debian's archive, once: 140 MB")
        programs = unpacked.fetch(packages.PROGRAMS, packages.SUITE, folder / "programs")
        tools = unpacked.fetch(packages.TOOL_PACKAGES, packages.TOOL_SUITE, folder / "tools")
        boot = _boot(folder, programs, tools, progress)
    libraries = programs / program.LIBRARIES
    names = ("ld-linux-x86-64.so.2", "libc.so.6", "libacl.so.1", "libselinux.so.1", "libpcre2-8.so.0")
    firmware = [str(programs / "usr/share" / name) for name in ("qemu", "seabios")]
    return Kit(
        qemu=(*program.command(programs, "usr/bin/qemu-system-x86_64"), "-L", firmware[0], "-L", firmware[1]),
        mkfs=program.command(programs, "usr/bin/mkfs.erofs"),
        tar=(*(libraries / name for name in names), programs / "usr/bin/tar"),
        kernel=boot / "vmlinuz",
        initramfs=boot / "initramfs",
    )


def _boot(folder: Path, programs: Path, tools: Path, progress: Progress) -> Path:
    """Return the folder with vmlinuz and initramfs, named by all they are made of but the kernel's version."""
    parts = [
        unpacked.fetched(programs),
        unpacked.fetched(tools),
        packages.TOOLS,
        modules.KERNEL_MODULES,
        LINKS,
        *_scripts().values(),
    ]
    boot = folder / f"boot-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"
    if boot.exists():
        return boot
    kernel = _kernel(folder, progress)
    incomplete = folder / f".{boot.name}.new"
    shutil.rmtree(incomplete, ignore_errors=True)
    incomplete.mkdir()
    shutil.copyfile(next(kernel.glob("boot/vmlinuz-*")), incomplete / "vmlinuz")
    (incomplete / "initramfs").write_bytes(_initramfs(kernel, programs, tools))
    incomplete.rename(boot)
    shutil.rmtree(kernel)  # 200 MB of which 20 were wanted
    return boot


def _kernel(folder: Path, progress: Progress) -> Path:
    """Return the unpacked package of the kernel that the suite's metapackage names today."""
    metapackage = unpacked.fetch((packages.KERNEL,), packages.SUITE, folder / "kernel-name")
    version = unpacked.fetched(metapackage)[packages.KERNEL]
    with locking.hold(f"apt-{packages.SUITE}", f"asking for the kernel {version}", progress):
        apt = unpacked.apt(packages.SUITE, unpacked.folder_of("apt", packages.SUITE))
        match = re.search(r"Depends: (linux-image-\S+)", apt.run("apt-cache", "depends", packages.KERNEL))
    if not match:
        raise RdmaImagesError(
            f"{packages.KERNEL} of Debian {packages.SUITE} names no kernel: its archive has changed\n"
            "leave out --tier datapath until it names one again"
        )
    return unpacked.fetch((match[1],), packages.SUITE, folder / "kernel")


def _initramfs(kernel: Path, programs: Path, tools: Path) -> bytes:
    """Return busybox, the modules in the order to load them, the RDMA tools, and the guests' scripts as an archive."""
    loadable = modules.modules(next(kernel.glob("usr/lib/modules/*")))
    files = {f"modules/{number:02}-{name}.ko": code for number, (name, code) in enumerate(loadable.items())}
    files |= {f"{folder}/.keep": b"" for folder in MOUNT_POINTS}
    busybox = programs / "usr/bin/busybox"
    runnable = program.bundled_files(
        programs, ("usr/bin/rdma", "usr/sbin/capsh"), ("libc.so.6", "libmnl.so.0", "libcap.so.2")
    )
    runnable |= _scripts()
    runnable |= {"bin/busybox": busybox.read_bytes(), "outside/bin/busybox": busybox.read_bytes()}
    runnable |= {f"outside/bin/{name}": (tools / "usr/bin" / name).read_bytes() for name in packages.TOOLS}
    return cpio.archive(files, runnable, LINKS | {f"bin/{name}": "busybox" for name in _applets(busybox)})


def _applets(busybox: Path) -> list[str]:
    """Return the commands in this busybox, apart from itself."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name != "busybox"]


def _scripts() -> dict[str, bytes]:
    """Return the guests' scripts, by path in the initramfs."""
    guest_folder = resources.files("rdma_images.datapath") / "guest"
    return {path: (guest_folder / path.rpartition("/")[2]).read_bytes() for path in SCRIPTS}
