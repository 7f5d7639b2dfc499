"""A registry to publish to, opened: its kind, one connection, and what registries.yaml asks of images there."""

from dataclasses import dataclass, field

from rdma_images.core.errors import RefusedError
from rdma_images.publish.kinds import Kind, open_kind
from rdma_images.registry import registries
from rdma_images.registry.client import Manifest, Repository
from rdma_images.registry.http import Connection
from rdma_images.registry.reference import HOST
from rdma_images.registry.registries import Compression, Registry

LAYERS = "wheel-layers"  # their repository, beside those of the targets


@dataclass(frozen=True)
class Destination:
    """One registry of registries.yaml, in use."""

    name: str
    kind: Kind
    compression: Compression
    immutable: bool
    connection: Connection = field(repr=False)

    def repository(self, target: str) -> Repository:
        """The repository of a target."""
        return Repository(self.connection, self.kind.repository(target))


def destination(name: str, registry: Registry) -> Destination:
    """Open a registry. Asks the control plane for its host where only that knows it."""
    kind = open_kind(registry)
    return Destination(
        name=name,
        kind=kind,
        compression=registry.compression,
        immutable=registry.immutable,
        connection=Connection(kind.host, kind.login, kind.tls),
    )


def unwanted(manifest: Manifest, compression: Compression) -> tuple[str, ...]:
    """The media types of layers that the registry's users cannot pull."""
    if compression == "any":
        return ()
    return tuple(sorted({one.media_type for one in manifest.layers() if not one.media_type.endswith(compression)}))


def layers_repository(place: str) -> Repository:
    """Where wheels' layers are kept: a registry of registries.yaml by its name, or HOST/REPOSITORY.

    Raises RefusedError for what is neither.
    """
    known = registries.known()
    if place in known.registries:
        return destination(place, known.registries[place]).repository(LAYERS)
    host, _, name = place.partition("/")
    if not HOST.fullmatch(host) or not registries.NAME.fullmatch(name):
        raise RefusedError(
            f"--cache-layers {place}: no registry of registries.yaml has this name, and it is not HOST/REPOSITORY\n"
            "write ghcr.io/team/wheel-layers, say"
        )
    return Repository(destination(host, known.of_host(host)).connection, name)
