"""What a build to ship needs from locks/ and does not find: said before CI begins, which can commit nothing."""

from collections.abc import Callable, Sequence

from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.pipeline import Image
from rdma_images.facts import Facts
from rdma_images.inputs import lock, preflight, sources
from rdma_images.inputs.mirrors import Mirrors


def missing(images: Sequence[Image], facts: Facts, replaced: Mirrors) -> tuple[str, ...]:
    """What is not locked for a build on this machine: sources by id and address, wheels by the key of their lock.

    Asks no network. A lock that is there and is about something else counts as missing.
    """
    found: dict[str, None] = {}  # a set in the order of the images
    for image in images:
        for source in sources.pinned(image, facts):
            if not preflight.is_locked(source, replaced):
                found[f"{source.id} ({source.upstream})"] = None
        for what, read in _wheels(image).items():
            try:
                read()
            except RefusedError:
                found[f"wheels {what}"] = None
    return tuple(found)


def require(images: Sequence[Image], facts: Facts, replaced: Mirrors) -> None:
    """Raise RefusedError, with all that is missing in one sentence, unless everything is locked."""
    if names := missing(images, facts, replaced):
        fix = f"run `{COMMAND} lock --all` where they can be reached, and commit locks/"
        raise RefusedError(f"locks/ lacks {', '.join(names)}\n{fix}")


def _wheels(image: Image) -> dict[str, Callable[[], object]]:
    """What reads each lock of wheels that an image needs, by its name."""
    found: dict[str, Callable[[], object]] = {
        lock.asked(image).key: lambda: lock.load(image),
        "tools": lock.tools,
    }
    if image.toolkit:
        found[lock.toolkit_asked(image).key] = lambda: lock.toolkit(image)
    return found
