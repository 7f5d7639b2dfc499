"""Whether an engine or a builder runs the programs of an image's platform, asked before anything is downloaded."""

import platform
import re
from collections.abc import Iterable

from rdma_images.core.errors import RefusedError
from rdma_images.engine import docker_command
from rdma_images.engine.model import Engine

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
_LISTED = re.compile(r"^Platforms:\s*(.+)$", re.MULTILINE)


def require(platforms: Iterable[str], engine: Engine, builder: str | None) -> None:
    """Raise RefusedError for a platform whose programs do not run there: a RUN would end with `exec format error`."""
    wanted = {name for name in platforms if builder or MACHINES.get(name) != platform.machine()}
    able = _able(engine, builder) if wanted else set()
    for name in sorted(wanted - able if able else ()):
        where = f"builder {builder}" if builder else f"engine {engine.name}"
        raise RefusedError(
            f"{where}: it does not run programs of {name}\n"
            "register an emulator on its machine (Debian: apt install qemu-user-static binfmt-support), or name "
            "a builder on a machine of that platform: --builder NAME"
        )


def _able(engine: Engine, builder: str | None) -> set[str]:
    """The platforms whose programs run on any node, as buildx lists them: "linux/amd64, linux/amd64/v2, linux/arm64*".

    Empty where it lists none: of a builder that does not run yet, or that there is not, which bake then says.
    """
    output = docker_command.run(engine, "buildx", "inspect", *([builder] if builder else [])).stdout
    return {word.strip("* ") for line in _LISTED.findall(output) for word in line.split(",")}
