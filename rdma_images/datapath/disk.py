"""Write an image's files as a read-only disk: an unlinked file, which the kernel deletes at its last close."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Fabric
from rdma_images.core.paths import state_folder

# What a container runtime gives programs where an image says nothing of it. Open MPI's daemons hang without a HOME.
DEFAULT_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}


@dataclass(frozen=True)
class ImageDisk:
    """An open, read-only descriptor of an image's files, and how its programs are run."""

    descriptor: int
    environment: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_ENVIRONMENT))
    user: str = "0"  # as an image's configuration has it: "name", "uid", "name:group", "uid:gid"
    architecture: str = "amd64"
    fabric: Fabric | None = None  # as the image says itself


def write_disk(mkfs: Sequence[str], source: Path | IO[bytes]) -> int:
    """Return an open, read-only descriptor of an EROFS filesystem of `source`.

    `source` is a folder or a tar stream. `mkfs` starts the command line of mkfs.erofs. Raises RdmaImagesError with the
    words of mkfs.erofs if it fails.
    """
    scratch = state_folder() / "datapath"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as file:
        name = f"/proc/self/fd/{file.fileno()}"
        if isinstance(source, Path):
            command, stream = [*mkfs, "--quiet", name, str(source)], None
        else:
            command, stream = [*mkfs, "--quiet", "--tar=f", name], source
        process = subprocess.run(
            command, stdin=stream or subprocess.DEVNULL, capture_output=True, text=True, pass_fds=(file.fileno(),)
        )
        if process.returncode:
            complaint = (process.stderr.strip().splitlines() or ["nothing"])[-1]
            raise RdmaImagesError(
                f"the disk of the image's files could not be made: mkfs.erofs reports {complaint!r}\n"
                "check the free space in the state folder"
            )
        # Opened anew: guests get no descriptor that could be written through.
        return os.open(name, os.O_RDONLY)
