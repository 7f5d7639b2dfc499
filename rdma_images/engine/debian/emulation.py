"""Run programs of another processor: Debian's qemu, registered in binfmt_misc.

A registration holds for the whole machine. So ours has a unique name, is made only where no other takes such programs,
and `unregister` removes only ours.
"""

import os
import platform
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rdma_images.core import atomic, locking
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import MACHINES, machine_name
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.engine.debian import debian_packages, host_apt

ELF_NUMBERS = {"x86_64": 62, "aarch64": 183}  # e_machine, elf.h

# Debian 13's: a base took 3 min with it. Its programs are static, so they run on every host and in every container.
SUITE, PACKAGE = "trixie", "qemu-user"
REGISTRY = Path("/proc/sys/fs/binfmt_misc")
BOOT = Path("/proc/sys/kernel/random/boot_id")
PREFIX = "rdma-images-"  # of the names of our registrations


@dataclass(frozen=True)
class Format:
    """A registration in binfmt_misc: the files that it takes, and who runs them."""

    name: str
    enabled: bool
    interpreter: str
    offset: int = 0
    magic: bytes = b""
    mask: bytes = b""

    def matches(self, machine: str) -> bool:
        """Return whether the kernel gives it the programs of `machine`."""
        header = _header(machine)[self.offset :][: len(self.magic)]
        mask = self.mask or b"\xff" * len(self.magic)
        has_magic = all((a ^ b) & m == 0 for a, b, m in zip(header, self.magic, mask, strict=False))
        return self.enabled and bool(self.magic) and len(header) == len(self.magic) and has_magic


def is_foreign(image_platform: str) -> bool:
    """Return whether a known platform's programs are for another processor than this one."""
    return machine_name(image_platform) not in ("", platform.machine())


def obstacle(image_platform: str) -> str | None:
    """Return why this host cannot run a foreign platform's programs; None where it can."""
    if any(format.matches(machine_name(image_platform)) for format in formats()):
        return None
    if os.geteuid() != 0:
        return "registering an emulator needs root"
    try:
        host_apt.host_archives()
    except RdmaImagesError as error:
        return f"the emulator is one of Debian's packages, but {str(error).partition(chr(10))[0]}"
    if not REGISTRY.is_dir():
        return f"this kernel has no binfmt_misc (no {REGISTRY})"
    if _mounted() and not os.access(REGISTRY / "register", os.W_OK):
        return f"{REGISTRY} is read-only here"
    return None


def ensure(image_platform: str, progress: Progress = silent) -> None:
    """Make this host run programs of a foreign platform, until `unregister` or the next boot.

    Raises RefusedError where there is an obstacle, and where the kernel does not take the registration.
    """
    machine = machine_name(image_platform)
    with locking.hold("emulation", f"registering an emulator for {image_platform}", progress):
        if any(format.matches(machine) for format in formats()):
            return
        if reason := obstacle(image_platform):
            raise RefusedError(f"{image_platform} cannot be emulated: {reason}\n{_fix()}")
        packages = debian_packages.fetch([PACKAGE], SUITE, _folder(), progress)
        progress(f"registering Debian's qemu for {image_platform}; `{COMMAND} engine.down` removes it")
        try:
            _mount()
            (REGISTRY / "register").write_bytes(registration_line(machine, packages))
        except OSError as error:
            raise RefusedError(
                f"{image_platform} cannot be emulated: {REGISTRY} does not take it: {error}\n{_fix()}"
            ) from None


def unregister() -> bool:
    """Undo what `ensure` of this state folder did; return whether it had done anything."""
    our_formats = _registered_formats()
    for format in our_formats:
        (REGISTRY / format.name).write_text("-1", encoding="ascii")
    if _mounted_by_us() and not formats():
        _unmount()
    _note().unlink(missing_ok=True)
    return bool(our_formats)


def registered() -> tuple[str, ...]:
    """Return the platforms that `ensure` of this state folder made this host run."""
    return tuple(
        name for name, machine in MACHINES.items() if any(format.matches(machine) for format in _registered_formats())
    )


def _registered_formats() -> list[Format]:
    folder = _folder()
    return [
        format
        for format in formats()
        if format.name.startswith(PREFIX) and Path(format.interpreter).is_relative_to(folder)
    ]


def formats() -> list[Format]:
    """Return all formats that are registered on this machine."""
    if not _mounted():
        return []
    names = sorted(path.name for path in REGISTRY.iterdir() if path.name not in ("register", "status"))
    registered_formats = []
    for name in names:
        with suppress(OSError):  # removed meanwhile
            registered_formats.append(parse(name, (REGISTRY / name).read_text(encoding="utf-8")))
    return registered_formats


def parse(name: str, text: str) -> Format:
    """Return a registration as binfmt_misc shows it.

    One that goes by a file's name has no magic, and takes no program.
    """
    lines = text.splitlines()
    values = dict(line.partition(" ")[::2] for line in lines[1:])
    return Format(
        name=name,
        enabled=lines[:1] == ["enabled"],
        interpreter=values.get("interpreter", ""),
        offset=int(values.get("offset", 0)),
        magic=bytes.fromhex(values.get("magic", "")),
        mask=bytes.fromhex(values.get("mask", "")),
    )


def registration_line(machine: str, packages: Path) -> bytes:
    """Return the line that registers qemu in `packages` for programs of `machine`.

    The kernel opens the emulator now and keeps it (F), so it runs also where no path leads to it: in a container.
    """
    header = bytearray(_header(machine))
    mask = bytearray(b"\xff" * len(header))
    mask[7] = 0  # the ABI: System V or Linux
    mask[16] = 0xFE  # ET_EXEC and ET_DYN, 2 and 3
    escaped = ["".join(f"\\x{byte:02x}" for byte in part) for part in (header, mask)]
    interpreter = packages / "usr" / "bin" / f"qemu-{machine}"
    return f":{PREFIX}{machine}:M::{escaped[0]}:{escaped[1]}:{interpreter}:F".encode()


def _header(machine: str) -> bytes:
    """Return the first bytes of programs for `machine`, elf(5)."""
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH", 2, ELF_NUMBERS[machine])


def _folder() -> Path:
    return debian_packages.cache_path("packages", PACKAGE)


def _fix() -> str:
    return (
        "register an emulator yourself (Debian: apt install qemu-user-static binfmt-support), or name a builder on a "
        "machine of that platform: --builder NAME"
    )


def _mounted() -> bool:
    return (REGISTRY / "register").exists()


def _mount() -> None:
    """Mount binfmt_misc where it is not, and note in which boot we did."""
    if _mounted():
        return
    import ctypes  # here, as below, because few commands mount anything

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"binfmt_misc", os.fsencode(REGISTRY), b"binfmt_misc", 0, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    atomic.write(_note(), BOOT.read_text(encoding="ascii"))


def _mounted_by_us() -> bool:
    try:
        return _note().read_text(encoding="ascii") == BOOT.read_text(encoding="ascii")
    except FileNotFoundError:
        return False


def _unmount() -> None:
    """Unmount binfmt_misc by libc: a small host has no umount(8)."""
    import ctypes

    ctypes.CDLL(None).umount2(os.fsencode(REGISTRY), 0)


def _note() -> Path:
    """Return where it is written down that binfmt_misc was mounted by us."""
    return debian_packages.cache_path("binfmt_misc.mounted")
