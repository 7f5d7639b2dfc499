"""Check, before any download, that an engine runs programs of an image's platform."""

import re
from collections.abc import Iterable

from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import docker_command
from rdma_images.engine.debian import emulation
from rdma_images.engine.docker_command import Engine

_LISTED = re.compile(r"^Platforms:\s*(.+)$", re.MULTILINE)


def require(platforms: Iterable[str], engine: Engine, builder: str | None = None, progress: Progress = silent) -> None:
    """Raise RefusedError for a platform whose programs the engine does not run.

    The private engine is given an emulator where it lacks one. Someone else's engine or builder is left as it is.
    """
    foreign = {name for name in platforms if builder or emulation.is_foreign(name)}
    if engine.kind == "private" and not builder:
        for name in sorted(foreign):
            emulation.ensure(name, progress)
        return
    able = _able(engine, builder) if foreign else set()
    for name in sorted(foreign - able if able else ()):
        where = f"builder {builder}" if builder else f"engine {engine.name}"
        raise RefusedError(
            f"{where}: it does not run programs of {name}\n"
            "register an emulator on its machine (Debian: apt install qemu-user-static binfmt-support), or name "
            "a builder on a machine of that platform: --builder NAME"
        )


def emulate(name: str, engine: Engine, progress: Progress = silent) -> None:
    """Give the private engine an emulator for a platform where it lacks one and can have it."""
    if engine.kind == "private" and emulation.is_foreign(name) and emulation.obstacle(name) is None:
        emulation.ensure(name, progress)


def _able(engine: Engine, builder: str | None) -> set[str]:
    """Return the platforms that buildx lists for the builder, such as "linux/arm64".

    Empty where it lists none: the builder does not run yet, or is unknown, which bake then says.
    """
    output = docker_command.run(engine, "buildx", "inspect", *([builder] if builder else [])).stdout
    return {word.strip("* ") for line in _LISTED.findall(output) for word in line.split(",")}
