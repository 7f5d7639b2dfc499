"""Platforms whose programs run here or in an engine: this machine's own, and those that have an emulator."""

import platform
import re
from collections.abc import Iterable
from pathlib import Path

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import machine_name
from rdma_images.engine import docker_command
from rdma_images.engine.docker_command import Engine

REGISTRY = Path("/proc/sys/fs/binfmt_misc")
EMULATOR = "register an emulator on its machine (Debian: apt install qemu-user-static binfmt-support)"
_LISTED = re.compile(r"^Platforms:\s*(.+)$", re.MULTILINE)


def is_foreign(image_platform: str) -> bool:
    """Return whether a known platform's programs are for another processor than this one."""
    return machine_name(image_platform) not in ("", platform.machine())


def has_emulator(image_platform: str) -> bool:
    """Return whether this machine's kernel gives a platform's programs to an emulator."""
    formats = REGISTRY.glob(f"*{machine_name(image_platform)}*")
    return any(path.read_text(encoding="utf-8").startswith("enabled") for path in formats)


def require_emulation(platforms: Iterable[str], engine: Engine, builder: str | None = None) -> None:
    """Raise RefusedError for a platform whose programs the engine, or the builder, does not run."""
    foreign = {name for name in platforms if builder or is_foreign(name)}
    able = _able(engine, builder) if foreign else set()
    for name in sorted(foreign - able if able else ()):
        where = f"builder {builder}" if builder else f"engine {engine.name}"
        raise RefusedError(
            f"{where}: it does not run programs of {name}\n"
            f"{EMULATOR}, or name a builder on a machine of that platform: --builder NAME"
        )


def _able(engine: Engine, builder: str | None) -> set[str]:
    """Return the platforms that buildx lists for the builder, such as "linux/arm64".

    Empty where it lists none: the builder does not run yet, or is unknown, which bake then says.
    """
    output = docker_command.run(engine, "buildx", "inspect", *([builder] if builder else [])).stdout
    return {word.strip("* ") for line in _LISTED.findall(output) for word in line.split(",")}
