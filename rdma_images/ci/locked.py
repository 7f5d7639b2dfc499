"""Find what a build to ship needs from locks/ and lacks, before CI begins, which can commit nothing."""

from collections.abc import Callable, Sequence

from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.pipeline import Image
from rdma_images.facts import Facts
from rdma_images.inputs import lock, preflight, sources
from rdma_images.inputs.mirrors import Mirrors


def missing_locks(images: Sequence[Image], facts: Facts, mirrors: Mirrors) -> tuple[str, ...]:
    """Return what is not locked for a build on this machine: sources by id and address, wheels by their lock's key.

    Asks no network. A lock that is there and is about something else counts as missing.
    """
    names: dict[str, None] = {}  # a set in the order of the images
    for image in images:
        for source in sources.pinned(image, facts):
            if not preflight.is_locked(source, mirrors):
                names[f"{source.id} ({source.upstream})"] = None
        for name, load in _wheel_lock_readers(image).items():
            try:
                load()
            except RefusedError:
                names[f"wheels {name}"] = None
    return tuple(names)


def require_locks(images: Sequence[Image], facts: Facts, mirrors: Mirrors) -> None:
    """Raise RefusedError, with all that is missing in one sentence, unless everything is locked.

    Raises it for a mirror that names no source, too.
    """
    preflight.require_names((source for image in images for source in sources.pinned(image, facts)), mirrors)
    if names := missing_locks(images, facts, mirrors):
        fix = f"run `{COMMAND} lock --all` where they can be reached, and commit locks/"
        raise RefusedError(f"locks/ lacks {', '.join(names)}\n{fix}")


def _wheel_lock_readers(image: Image) -> dict[str, Callable[[], object]]:
    """Return what reads each lock of wheels that an image needs, by its name."""
    readers: dict[str, Callable[[], object]] = {
        lock.lock_request(image).key: lambda: lock.load(image),
        "tools": lock.tools,
    }
    if image.toolkit:
        readers[lock.toolkit_request(image).key] = lambda: lock.load_toolkit(image)
    return readers
