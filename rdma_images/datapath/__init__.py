"""Validate an image's RDMA data path without RDMA hardware, between two virtual machines with an emulated adapter."""

import platform
from pathlib import Path

from rdma_images.core import atomic
from rdma_images.core.check import Check
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Fabric, Image
from rdma_images.core.progress import Progress, silent
from rdma_images.datapath import kit, lab, steps
from rdma_images.datapath.disk import ImageDisk
from rdma_images.datapath.guest import GuestError, NoGuestError
from rdma_images.datapath.kit import GuestFiles
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

    kit_or_reason = _prepare_kit(progress)
    if isinstance(kit_or_reason, str):
        return steps.all_skipped(kit_or_reason, image.fabric if image else None)
    progress(f"datapath: reading {ref} out of the engine")
    with export.image_disk(ref, engine, kit_or_reason) as files:
        return check(files, kit_or_reason, image.fabric if image else files.fabric, folder, progress)


def check(
    files: ImageDisk, guest_kit: GuestFiles, fabric: Fabric | None, folder: Path, progress: Progress = silent
) -> tuple[Check, ...]:
    """Return the checks for a disk; a failure writes both consoles into `folder`."""
    if files.architecture != "amd64":
        return steps.all_skipped(f"the image is for {files.architecture}, and the emulated machines are amd64", fabric)
    progress("datapath: starting two machines")
    (folder / CONSOLE).unlink(missing_ok=True)
    try:
        return _check_between(guest_kit, files, fabric, folder, progress)
    except NoGuestError as error:
        return steps.all_skipped(f"the emulator does not run here: {error}", fabric)


def _check_between(
    guest_kit: GuestFiles, files: ImageDisk, fabric: Fabric | None, folder: Path, progress: Progress
) -> tuple[Check, ...]:
    """Return the checks between two machines with these files.

    Raises NoGuestError where no machine can run.
    """
    checks: list[Check] = []
    with lab.guests(guest_kit, files) as pair:
        try:
            checks.extend(steps.run_steps(lab.open_lab(pair, files), fabric, progress))
        except GuestError as error:
            checks = list(steps.after_lost_guest(checks, error, fabric))
        if any(result.outcome == "failed" for result in checks):
            consoles = (f"== {guest.address} ==\n{guest.console()}" for guest in pair)
            atomic.write(folder / CONSOLE, "\n".join(consoles))
    return tuple(checks)


def _prepare_kit(progress: Progress) -> GuestFiles | str:
    """Return what guests are started with, or the reason why none can run on this machine."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"the emulator is for Linux on x86_64, and this is {platform.system()} on {platform.machine()}"
    try:
        return kit.prepare(progress)
    except RdmaImagesError as error:
        return f"the emulator is not available: {error}"
