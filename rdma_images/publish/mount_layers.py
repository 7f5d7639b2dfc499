"""Have a registry take wheel layers from its other repositories, so that they are not sent."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from rdma_images.core.sizes import format_megabytes
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.destination import LAYERS, Destination
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Repository


def mount_wheel_layers(
    approved: ApprovedImage, destination: Destination, repository: Repository, progress: Callable[[str], None]
) -> frozenset[str]:
    """Have a registry mount wheel layers that it has in other repositories.

    docker itself mounts only what it pulled or pushed before, and not what BuildKit pulled or another machine sent.
    A failure here is not an error: docker asks for each layer, and sends the missing ones.

    Returns:
        The digests of the layers that the repository has now without sending.
    """
    mounted: dict[str, int] = {}
    with suppress(registry_errors.RegistryError):
        missing_layers = dict(approved.build.layers)
        missing_layers = {
            digest: missing_layers[digest]
            for digest in missing_layers.keys() - _present_layers(repository, missing_layers)
        }
        for source in _layer_repositories(approved, destination):
            for digest in _present_layers(source, missing_layers):
                if not repository.mount(digest, source):
                    progress(
                        f"{destination.name}: mounts nothing from {source.ref}, so that the wheels' layers are sent"
                    )
                    return frozenset(mounted)
                mounted[digest] = missing_layers.pop(digest)
    if mounted:
        progress(
            f"{destination.name}: {format_megabytes(sum(mounted.values()))} of wheels' layers were in the registry"
        )
    return frozenset(mounted)


def _layer_repositories(approved: ApprovedImage, destination: Destination) -> Iterator[Repository]:
    """Yield the repositories that may have wheel layers, the likeliest first."""
    host, _, name = approved.build.layers_at.partition("/")
    if host == destination.connection.host:
        yield Repository(destination.connection, name)
    for target in (LAYERS, *approved.other_targets):
        yield destination.repository(target)


def _present_layers(repository: Repository, layers: Mapping[str, int]) -> set[str]:
    """Return which of `layers` a repository has; an empty set where it does not answer."""
    with suppress(registry_errors.RegistryError):
        return repository.present_blobs(layers)
    return set()
