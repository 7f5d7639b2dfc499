"""Which images of the matrix a CI run is about."""

from collections.abc import Sequence

from rdma_images.ci import changed, shard
from rdma_images.engine import Progress, silent
from rdma_images.model import Build, Image
from rdma_images.publish.item import read


def select(images: Sequence[Image], part: str, since: str, progress: Progress = silent) -> tuple[Image, ...]:
    """`images`, of them those that changed since the commit `since`, of them the shard `part` ("i/n"); "" for all."""
    chosen = tuple(images)
    if since:
        before = changed.digests_at(since, progress)
        chosen = changed.changed(chosen, changed.digests(progress), before)
        progress(f"{len(chosen)} of {len(images)} images have changed since {since}")
    if part:
        number, of = shard.parse(part)
        chosen = shard.shard(chosen, of, built)[number - 1]
    return chosen


def built(image_id: str) -> Build | None:
    """The last build of an image that this machine knows of."""
    return read(image_id, "build.json", Build)
