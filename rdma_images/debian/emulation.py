"""Whether this host runs the programs of another processor: an emulator that is registered with the kernel."""

import platform
from pathlib import Path

from rdma_images.core.image import machine_of

REGISTRY = Path("/proc/sys/fs/binfmt_misc")
REGISTER = "register an emulator (Debian: apt install qemu-user-static binfmt-support)"


def is_foreign(image_platform: str) -> bool:
    """Return whether the programs of a platform are for another processor than this host's.

    Not so for an unknown name.
    """
    return machine_of(image_platform) not in ("", platform.machine())


def obstacle(image_platform: str) -> str | None:
    """Return why this host cannot run programs of a foreign platform, as half a sentence; None where it can.

    Debian's, Docker's and tonistiigi/binfmt's registrations are called qemu-aarch64 and qemu-x86_64.
    """
    registration = REGISTRY / f"qemu-{machine_of(image_platform)}"
    try:
        is_enabled = registration.read_text(encoding="utf-8").startswith("enabled")
    except OSError:
        is_enabled = False
    return None if is_enabled else f"no emulator is registered with the kernel as {registration}"
