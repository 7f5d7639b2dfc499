"""Which images of the matrix a CI run is about."""

from collections.abc import Sequence

from rdma_images.ci import changed, shard
from rdma_images.core.pipeline import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.step_files import BUILD


def select(
    images: Sequence[Image], part: str | None, since: str | None, progress: Progress = silent
) -> tuple[Image, ...]:
    """`images`, of them those that changed since the commit `since`, of them the shard `part` ("i/n"); None for all.

    An empty one is refused: it comes of a variable that is not set, and would mean everything.
    """
    chosen = tuple(images)
    if since is not None:
        before = changed.digests_at(since, progress)
        chosen = changed.changed(chosen, changed.digests(progress), before)
        progress(f"{len(chosen)} of {len(images)} images have changed since {since}")
    if part is not None:
        number, of = shard.parse(part)
        chosen = shard.shard(chosen, of, BUILD.read)[number - 1]
    return chosen
