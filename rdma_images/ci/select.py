"""Select the images of the matrix that a CI run is about."""

from collections.abc import Sequence

from rdma_images.ci import changed, shard
from rdma_images.core.pipeline import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.step_files import BUILD


def select_images(
    images: Sequence[Image], part: str | None, since: str | None, progress: Progress = silent
) -> tuple[Image, ...]:
    """Return those of `images` that changed since the commit `since`, of them the shard `part` ("i/n"); None for all.

    An empty text is refused: it comes of a variable that is not set, and would mean everything.
    """
    chosen = tuple(images)
    if since is not None:
        earlier = changed.digests_at(since, progress)
        chosen = changed.changed_images(chosen, changed.digests(progress), earlier)
        progress(f"{len(chosen)} of {len(images)} images have changed since {since}")
    if part is not None:
        number, parts = shard.parse_shard(part)
        chosen = shard.split_images(chosen, parts, BUILD.read)[number - 1]
    return chosen
