"""Validate an image's RDMA data path without RDMA hardware, between two virtual machines with an emulated adapter."""

import platform
from pathlib import Path

from rdma_images.core import atomic
from rdma_images.core.check import Check
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Fabric, Image
from rdma_images.core.progress import Progress, silent
from rdma_images.datapath import guests, steps
from rdma_images.datapath.disk import ImageDisk
from rdma_images.datapath.guest import GuestError, NoGuestError
from rdma_images.datapath.guest_files import GuestFiles, prepare
from rdma_images.engine.docker_command import Engine

CONSOLE = "datapath-console.log"


def run(
    ref: str, engine: Engine, folder: Path, image: Image | None = None, progress: Progress = silent
) -> tuple[Check, ...]:
    """Return the checks of the datapath tier for the image `ref` of `engine`.

    Args:
        folder: Where the consoles of both machines are written as datapath-console.log if a check fails.

    Returns:
        The checks; all skipped, with the reason, where this machine cannot run such machines.

    Raises:
        RdmaImagesError: The engine does not have the image or cannot read it out.
    """
    from rdma_images.datapath import export  # docker-py takes 0.2 s, which who shows a report should not wait for

    guest_files = _prepare_guest_files(progress)
    if isinstance(guest_files, str):
        return steps.all_skipped(guest_files, image.fabric if image else None)
    progress(f"datapath: reading {ref} out of the engine")
    with export.image_disk(ref, engine, guest_files) as disk:
        return check(disk, guest_files, image.fabric if image else disk.fabric, folder, progress)


def check(
    disk: ImageDisk, guest_files: GuestFiles, fabric: Fabric | None, folder: Path, progress: Progress = silent
) -> tuple[Check, ...]:
    """Return the checks for a disk; a failure writes both consoles into `folder`."""
    if disk.architecture != "amd64":
        return steps.all_skipped(f"the image is for {disk.architecture}, and the emulated machines are amd64", fabric)
    progress("datapath: starting two machines")
    (folder / CONSOLE).unlink(missing_ok=True)
    try:
        return _check_between(guest_files, disk, fabric, folder, progress)
    except NoGuestError as error:
        return steps.all_skipped(f"the emulator does not run here: {error}", fabric)


def _check_between(
    guest_files: GuestFiles, disk: ImageDisk, fabric: Fabric | None, folder: Path, progress: Progress
) -> tuple[Check, ...]:
    """Return the checks between two machines with this disk. Raises NoGuestError where no machine can run."""
    checks: list[Check] = []
    with guests.start_guests(guest_files, disk) as pair:
        try:
            checks.extend(steps.run_steps(guests.ready_guests(pair, disk), fabric, progress))
        except GuestError as error:
            checks = list(steps.after_lost_guest(checks, error, fabric))
        if any(result.outcome == "failed" for result in checks):
            consoles = (f"== {guest.address} ==\n{guest.console()}" for guest in pair)
            atomic.write(folder / CONSOLE, "\n".join(consoles))
    return tuple(checks)


def _prepare_guest_files(progress: Progress) -> GuestFiles | str:
    """Return what guests are started with, or the reason why none can run on this machine."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"the emulator is for Linux on x86_64, and this is {platform.system()} on {platform.machine()}"
    try:
        return prepare(progress)
    except RdmaImagesError as error:
        return f"the emulator is not available: {error}"
