"""Problems of an image's Python packages that locks and earlier answers show."""

from collections.abc import Iterable
from contextlib import suppress

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.facts import Facts
from rdma_images.inputs import conflicts, lock
from rdma_images.inputs.wheels import Lock, LockRequest


def problem(image: Image, facts: Facts) -> str | None:
    """Return why an image's packages cannot be installed, None for no known reason.

    That is a lock that does not fit, or, where there is none, what the index answered within the last week.
    """
    request = lock.lock_request(image)
    try:
        lock.load(image)
    except lock.NotLockedError:
        with suppress(RdmaImagesError):  # of a user without a home folder, for whom nothing is kept
            if conflict := conflicts.recall(request):
                fact, _, fix = conflicts.explain(conflict, image, facts).partition("\n")
                return f"{fact} (asked of the package index on {conflict.day})\n{fix}"
    except RdmaImagesError as error:
        return str(error)
    return None


def note(image: Image, facts: Facts) -> str | None:
    """Return with which other torch an image's packages are locked; None for nothing."""
    torch = image.components.get("pytorch")
    request = lock.lock_request(image)
    if not torch or not image.python_packages or lock.exists(request):
        return None
    candidates = [_read_lock(_with_torch(request, version)) for version in facts.torch.releases]
    locks = [earlier_lock for earlier_lock in candidates if earlier_lock]
    if not locks:
        return None
    names = [canonicalize_name(Requirement(line).name) for line in image.python_packages]
    words = " and ".join(
        f"{_versions(earlier_lock, ['torch'])} ({_versions(earlier_lock, names)})" for earlier_lock in locks
    )
    return (
        f"not locked  {image.target} with torch {torch.version}: its packages are locked with {words}; "
        f"`{paths.COMMAND} lock` asks the package index for this torch"
    )


def _with_torch(request: LockRequest, version: str) -> LockRequest:
    _, *other_requirements = request.requirements  # torch is the first
    return request.model_copy(update={"requirements": (f"torch=={version}", *other_requirements)})


def _read_lock(request: LockRequest) -> Lock | None:
    """Return the lock of a request; None where there is none that fits."""
    with suppress(RdmaImagesError):
        return lock.read_lock(request)
    return None


def _versions(locked: Lock, names: Iterable[str]) -> str:
    versions = {str(canonicalize_name(wheel.name)): wheel.version for wheel in locked.wheels}
    return ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
