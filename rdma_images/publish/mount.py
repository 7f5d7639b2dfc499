"""Mount wheels' layers that another repository of the registry has, before docker pushes the rest.

docker itself mounts only what it pulled or pushed before, and not what BuildKit pulled or another machine sent.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rdma_images.core.sizes import megabytes
from rdma_images.publish.destination import LAYERS, Destination
from rdma_images.publish.item import ApprovedImage
from rdma_images.registry import faults
from rdma_images.registry.client import Repository

_QUESTIONS = 8  # at once


def mount(
    item: ApprovedImage, destination: Destination, repository: Repository, say: Callable[[str], None]
) -> frozenset[str]:
    """Mount the image's wheel layers that `repository` lacks; return the digests of those it has now without sending.

    What fails here is not an error: docker asks for each layer, and sends what is missing.
    """
    mounted: dict[str, int] = {}
    with suppress(faults.PublishError):
        missing = dict(item.build.layers)
        missing = {digest: missing[digest] for digest in missing.keys() - _present(repository, missing)}
        for source in _sources(item, destination):
            for digest in _present(source, missing):
                if not repository.mount(digest, source):
                    say(f"{destination.name}: mounts nothing from {source.ref}, so that the wheels' layers are sent")
                    return frozenset(mounted)
                mounted[digest] = missing.pop(digest)
    if mounted:
        say(f"{destination.name}: {megabytes(sum(mounted.values()))} of wheels' layers were in the registry")
    return frozenset(mounted)


def _sources(item: ApprovedImage, destination: Destination) -> Iterator[Repository]:
    """Yield the repositories of this registry that may have wheels' layers, the likeliest first."""
    host, _, name = item.build.layers_at.partition("/")
    if host == destination.connection.host:
        yield Repository(destination.connection, name)
    for target in (LAYERS, *item.beside):
        yield destination.repository(target)


def _present(repository: Repository, layers: Mapping[str, int]) -> set[str]:
    """Return those of `layers` that a repository has; none where it does not answer questions about them."""
    if not layers:
        return set()
    try:
        # One question first: where it may not be asked, seven more at once would each fetch fresh credentials.
        first, *rest = layers.items()
        answers = [repository.has_blob(*first)]
        with ThreadPoolExecutor(_QUESTIONS) as pool:
            answers += pool.map(lambda layer: repository.has_blob(*layer), rest)
    except faults.PublishError:
        return set()
    return {digest for digest, present in zip(layers, answers, strict=True) if present}
