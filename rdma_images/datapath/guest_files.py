"""Prepare all that guests are started with, from Debian's archive, once for a state folder."""

import hashlib
import lzma
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath

from rdma_images.core import locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.core.progress import Progress
from rdma_images.datapath import packages
from rdma_images.engine.debian import debian_packages

# The folders a guest's first process mounts on or writes to.
MOUNT_POINTS = ("proc", "sys", "dev", "base", "upper", "image", "task", "tmp")
# What guests run of ours, by path in the first root filesystem; "outside" is what the image's programs see of it.
SCRIPTS = ("init", "outside/bin/rdma-files", "outside/bin/rsh")
LINKS = {"outside/bin/sh": "busybox"}
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
# What the guest needs beyond what Debian builds into its kernel. rdma_rxe asks the crypto layer for "crc32" by
# name, which no dependency says: without crc32_generic `rdma link add` fails with "No such file or directory".
KERNEL_MODULES = (
    "crc32c_generic",
    "virtio_blk",
    "virtio_net",
    "erofs",
    "overlay",
    "crc32_generic",
    "rdma_rxe",
    "rdma_ucm",
)
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


@dataclass(frozen=True)
class GuestFiles:
    """The programs and files of a guest that do not depend on the image.

    The commands are starts of command lines; `kernel` and `initramfs` are files.
    """

    qemu: tuple[str, ...]
    mkfs: tuple[str, ...]  # mkfs.erofs
    tar: tuple[Path, ...]  # GNU tar after its loader and libraries, to be carried elsewhere
    kernel: Path
    initramfs: Path


def prepare(progress: Progress) -> GuestFiles:
    """Return the files, downloaded and made where they are missing. Raises RdmaImagesError for a silent archive."""
    folder = state_folder() / "datapath"
    with locking.hold("datapath-kit", "preparing the emulator", progress):
        if not debian_packages.fetched_packages(folder / "programs"):
            progress("downloading QEMU, a kernel and a few tools from Debian's archive, once: 140 MB")
        programs = debian_packages.fetch(packages.PROGRAMS, packages.SUITE, folder / "programs")
        tools = debian_packages.fetch(packages.TOOL_PACKAGES, packages.TOOL_SUITE, folder / "tools")
        boot = _boot(folder, programs, tools, progress)
    libraries = programs / LIBRARIES
    names = ("ld-linux-x86-64.so.2", "libc.so.6", "libacl.so.1", "libselinux.so.1", "libpcre2-8.so.0")
    firmware = [str(programs / "usr/share" / name) for name in ("qemu", "seabios")]
    return GuestFiles(
        qemu=(*command(programs, "usr/bin/qemu-system-x86_64"), "-L", firmware[0], "-L", firmware[1]),
        mkfs=command(programs, "usr/bin/mkfs.erofs"),
        tar=(*(libraries / name for name in names), programs / "usr/bin/tar"),
        kernel=boot / "vmlinuz",
        initramfs=boot / "initramfs",
    )


def _boot(folder: Path, programs: Path, tools: Path, progress: Progress) -> Path:
    """Return the folder with vmlinuz and initramfs.

    Its name is of all that they are made of but the kernel's version.
    """
    parts = [
        debian_packages.fetched_packages(programs),
        debian_packages.fetched_packages(tools),
        packages.TOOLS,
        KERNEL_MODULES,
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
    metapackage = debian_packages.fetch((packages.KERNEL,), packages.SUITE, folder / "kernel-name")
    version = debian_packages.fetched_packages(metapackage)[packages.KERNEL]
    with locking.hold(f"apt-{packages.SUITE}", f"asking for the kernel {version}", progress):
        apt = debian_packages.updated_apt(packages.SUITE, debian_packages.cache_path("apt", packages.SUITE))
        match = re.search(r"Depends: (linux-image-\S+)", apt.run("apt-cache", "depends", packages.KERNEL))
    if not match:
        raise RdmaImagesError(
            f"{packages.KERNEL} of Debian {packages.SUITE} names no kernel: its archive has changed\n"
            "leave out --tier datapath until it names one again"
        )
    return debian_packages.fetch((match[1],), packages.SUITE, folder / "kernel")


def _initramfs(kernel: Path, programs: Path, tools: Path) -> bytes:
    """Return an archive of busybox, modules in loading order, tools and scripts."""
    loadable = modules(next(kernel.glob("usr/lib/modules/*")))
    files = {f"modules/{number:02}-{name}.ko": code for number, (name, code) in enumerate(loadable.items())}
    files |= {f"{folder}/.keep": b"" for folder in MOUNT_POINTS}
    busybox = programs / "usr/bin/busybox"
    runnable = bundled_files(programs, ("usr/bin/rdma", "usr/sbin/capsh"), ("libc.so.6", "libmnl.so.0", "libcap.so.2"))
    runnable |= _scripts()
    runnable |= {"bin/busybox": busybox.read_bytes(), "outside/bin/busybox": busybox.read_bytes()}
    runnable |= {f"outside/bin/{name}": (tools / "usr/bin" / name).read_bytes() for name in packages.TOOLS}
    return archive(files, runnable, LINKS | {f"bin/{name}": "busybox" for name in _applets(busybox)})


def _applets(busybox: Path) -> list[str]:
    """Return the commands in this busybox, apart from itself."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name != "busybox"]


def _scripts() -> dict[str, bytes]:
    """Return the guests' scripts, by path in the initramfs."""
    guest_folder = resources.files("rdma_images.datapath") / "guest"
    return {path: (guest_folder / path.rpartition("/")[2]).read_bytes() for path in SCRIPTS}


def command(package_folder: Path, program: str) -> tuple[str, ...]:
    """Return the start of a command line for `program` ("usr/bin/tar") of a package."""
    libraries = package_folder / LIBRARIES
    return (str(package_folder / LOADER), "--library-path", str(libraries), str(package_folder / program))


def bundled_files(package_folder: Path, programs: Iterable[str], libraries: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of programs and their libraries, by their paths in a guest."""
    files = {f"bin/{Path(program).name}": (package_folder / program).read_bytes() for program in programs}
    files |= {f"lib/{name}": (package_folder / LIBRARIES / name).read_bytes() for name in libraries}
    return files | {"lib64/ld-linux-x86-64.so.2": (package_folder / LOADER).read_bytes()}


def archive(files: dict[str, bytes], programs: dict[str, bytes], links: dict[str, str]) -> bytes:
    """Return an initramfs of files, programs (executable) and links.

    Paths are without a leading slash. The same content gives the same bytes: everything belongs to root and is of 1970.
    Folders are added as needed.
    """
    folders = {folder for path in (*files, *programs, *links) for folder in PurePosixPath(path).parents if folder.name}
    entries = {str(folder): (stat.S_IFDIR | 0o755, b"") for folder in folders}
    entries |= {path: (stat.S_IFREG | 0o644, data) for path, data in files.items()}
    entries |= {path: (stat.S_IFREG | 0o755, data) for path, data in programs.items()}
    entries |= {path: (stat.S_IFLNK | 0o777, target.encode()) for path, target in links.items()}
    # Sorted, a folder comes before what is in it, which the kernel needs.
    parts = [_entry(number, path, *entries[path]) for number, path in enumerate(sorted(entries), 1)]
    return b"".join((*parts, _entry(0, "TRAILER!!!", 0, b"")))


def _entry(inode: int, path: str, mode: int, data: bytes) -> bytes:
    """Return a header of 13 hexadecimal numbers, the name and the data, each padded."""
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    numbers = (inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def modules(tree: Path, names: tuple[str, ...] = KERNEL_MODULES) -> dict[str, bytes]:
    """Return the wanted modules and all they depend on, by name, in loading order.

    `tree` is a kernel's folder of modules (…/lib/modules/<release>). Debian ships them .xz; they are unpacked here,
    where that takes milliseconds, and not in an emulated guest. Raises RdmaImagesError naming a module not in `tree`.
    """
    # The kernel knows a module by its name without suffixes, and with underscores.
    files = {path.name.partition(".ko")[0].replace("-", "_"): path for path in tree.rglob("*.ko*")}
    content_by_name: dict[str, bytes] = {}
    for name in names:
        _add(name, files, content_by_name)
    return content_by_name


def _add(name: str, files: dict[str, Path], content_by_name: dict[str, bytes]) -> None:
    """Add the module after what it depends on.

    Kernel modules never depend on each other in a circle.
    """
    if name in content_by_name:
        return
    if name not in files:
        raise RdmaImagesError(
            f"the kernel has no module {name!r}\nchoose a Debian kernel that is not the cloud flavour"
        )
    content = files[name].read_bytes()
    if files[name].suffix == ".xz":
        content = lzma.decompress(content)
    for dependency in _dependencies(content):
        _add(dependency, files, content_by_name)
    content_by_name[name] = content


def _dependencies(module: bytes) -> list[str]:
    """Return the dependencies in the module's own .modinfo section."""
    match = _DEPENDS.search(module)
    return [name.replace("-", "_") for name in match[1].decode().split(",") if name] if match else []
