"""Wheels' layers that another repository of the registry has, mounted from there before docker pushes the rest.

docker itself mounts only what it pulled or pushed before, and not what BuildKit pulled or another machine sent.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rdma_images.core.sizes import megabytes
from rdma_images.publish.destination import LAYERS, Destination
from rdma_images.publish.item import Item
from rdma_images.registry import faults
from rdma_images.registry.client import Repository

_QUESTIONS = 8  # at once


def mount(item: Item, place: Destination, repository: Repository, say: Callable[[str], None]) -> frozenset[str]:
    """The digests of those of the image's wheel layers that `repository` did not have, and has now without sending.

    What fails here is not an error: docker asks for each layer, and sends what is not there.
    """
    mounted: dict[str, int] = {}
    with suppress(faults.PublishError):
        wanted = dict(item.build.layers)
        wanted = {digest: wanted[digest] for digest in wanted.keys() - _held(repository, wanted)}
        for source in _sources(item, place):
            for digest in _held(source, wanted):
                if not repository.mount(digest, source):
                    say(f"{place.name}: mounts nothing from {source.ref}, so that the wheels' layers are sent")
                    return frozenset(mounted)
                mounted[digest] = wanted.pop(digest)
    if mounted:
        say(f"{place.name}: {megabytes(sum(mounted.values()))} of wheels' layers were in the registry")
    return frozenset(mounted)


def _sources(item: Item, place: Destination) -> Iterator[Repository]:
    """The repositories of this registry that may have wheels' layers, the likeliest first."""
    host, _, name = item.build.layers_at.partition("/")
    if host == place.connection.host:
        yield Repository(place.connection, name)
    for target in (LAYERS, *item.beside):
        yield place.repository(target)


def _held(repository: Repository, wanted: Mapping[str, int]) -> set[str]:
    """Those of the layers `wanted` that a repository has; none of one that does not answer questions about them."""
    if not wanted:
        return set()
    try:
        # One question first: where it may not be asked, seven more at once would each fetch fresh credentials.
        first, *rest = wanted.items()
        answers = [repository.has_blob(*first)]
        with ThreadPoolExecutor(_QUESTIONS) as pool:
            answers += pool.map(lambda one: repository.has_blob(*one), rest)
    except faults.PublishError:
        return set()
    return {digest for digest, there in zip(wanted, answers, strict=True) if there}
