"""A registry to publish to, opened: its kind, one connection, and what registries.yaml asks of images there."""

from dataclasses import dataclass, field

from rdma_images.publish.client import Manifest, Repository
from rdma_images.publish.http import Connection
from rdma_images.publish.kinds import Kind, open_kind
from rdma_images.publish.registries import Compression, Registry


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
