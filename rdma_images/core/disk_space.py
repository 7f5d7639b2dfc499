"""Disk space: how much is free or used, checked before the work that needs it."""

import shutil
import subprocess
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.core.sizes import format_bytes

GB = 10**9  # bytes

# What the builder's cache may keep. Five builds of these images grew to 60 GB without a limit; images share their
# wheel layers, so 40 GB keep several versions of each. A fuller disk keeps space for the images themselves, and a build
# of one image, which has some 5 GB of steps, still finds its own.
CACHE_MAX_BYTES = 40 * GB
CACHE_SHARE = 0.2  # of what is free
CACHE_MIN_BYTES = 8 * GB


def cache_limit(folder: Path) -> int:
    """Return how many bytes the builder's cache may take: a fifth of what is free now."""
    return max(CACHE_MIN_BYTES, min(CACHE_MAX_BYTES, int(free(folder) * CACHE_SHARE)))


def free(folder: Path) -> int:
    """Return the bytes free where `folder` is, or will be."""
    return shutil.disk_usage(_existing(folder)).free


def require_free_space(size: int, purpose: str, folder: Path | None = None) -> None:
    """Require that `size` bytes are free where `folder` is, by default the state folder.

    Raises RdmaImagesError with what is needed, what is free, where, and the fix.
    """
    path = folder or state_folder()
    free_bytes = free(path)
    if free_bytes < size:
        # The folder of an engine that is not ours stays where it is.
        elsewhere = ", or set RDMA_IMAGES_STATE to a folder on a larger disk" * path.is_relative_to(state_folder())
        raise RdmaImagesError(
            f"{purpose} needs {format_bytes(size)}, and {path} has {format_bytes(free_bytes)} free\n"
            f"free {format_bytes(size - free_bytes)} there{elsewhere}"
        )


def used_bytes(folder: Path) -> int:
    """Return the bytes that `folder` takes on its disk.

    File systems that an engine mounted there are not counted again.
    """
    if not folder.exists():
        return 0
    # Its exit code tells of files that went away meanwhile: the total stands.
    output = subprocess.run(["du", "-sxB1", str(folder)], capture_output=True, text=True).stdout
    return int((output.split() or ["0"])[0])


def total(folder: Path) -> int:
    """Return the bytes of the disk where `folder` is, or will be."""
    return shutil.disk_usage(_existing(folder)).total


def _existing(folder: Path) -> Path:
    """Return the nearest folder above that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
