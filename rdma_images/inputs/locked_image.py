"""An image with its locks, which are resolved where they are missing: what a plan shows, and a build renders."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.inputs import lock
from rdma_images.inputs.project import Project
from rdma_images.inputs.wheels import Lock
from rdma_images.plan import onto_changes


@dataclass(frozen=True)
class LockedImage:
    """An image with the locks of its wheels, and of the wheels that compile its stages."""

    image: Image  # with what its wheels change in the image below it
    wheels: Lock
    toolkit: Lock


def lock_image(image: Image, project: Project, rehearse: bool = False, progress: Progress = silent) -> LockedImage:
    """Return an image with its locks. Writes those that are missing; a rehearsal's own are below build/."""
    is_locked = lock.exists(lock.lock_request(image))
    wheels = _lock_wheels(image, project, rehearse, progress)
    if not (is_locked or rehearse):
        lock.remove_superseded([image], project, progress)
    image = _with_package_changes(image, wheels)
    compilers = lock.toolkit_request(image)
    load_locked, lock_now = partial(lock.read_lock, compilers), partial(lock.lock_toolkit, compilers, project.mirrors)
    toolkit = _read_or_lock(f"the compilers of {image.id}", load_locked, lock_now, rehearse, progress)
    return LockedImage(image, wheels, toolkit)


def with_package_changes(image: Image, project: Project, progress: Progress = silent) -> Image:
    """Return an image with the changes that its packages make to the image below it, if there is one."""
    return _with_package_changes(image, _lock_wheels(image, project, True, progress)) if image.onto else image


def _with_package_changes(image: Image, wheels: Lock) -> Image:
    return onto_changes.with_package_changes(image, {wheel.name: wheel.version for wheel in wheels.wheels})


def _lock_wheels(image: Image, project: Project, rehearse: bool, progress: Progress) -> Lock:
    load_locked, lock_now = partial(lock.read_image_lock, image), partial(lock.create_lock, image, project.mirrors)
    return _read_or_lock(f"the wheels of {image.id}", load_locked, lock_now, rehearse, progress)


def _read_or_lock(
    subject: str,
    load_locked: Callable[[Path | None], Lock],
    lock_now: Callable[[Path | None], Lock],
    rehearse: bool,
    progress: Progress,
) -> Lock:
    """Return a lock, resolved if missing; a rehearsal's own lock is below build/.

    Args:
        load_locked: Takes the folder of locks, None for the project's.
        lock_now: Likewise; asks the package index.
    """
    with suppress(lock.NotLockedError):
        return load_locked(None)
    folder = paths.BUILD / "locks" if rehearse else None
    if folder:
        with suppress(RdmaImagesError):  # what does not fit any more is resolved again
            return load_locked(folder)
    progress(f"locking {subject}")
    locked = lock_now(folder)
    if not rehearse:
        progress(
            f"wrote {paths.display_path(lock.lock_path(locked.request))}: "
            "commit it, so that every build has these wheels"
        )
    return locked
