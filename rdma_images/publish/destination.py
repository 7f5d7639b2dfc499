"""An opened registry to publish to: its kind, one connection, its settings."""

from dataclasses import dataclass, field

from rdma_images.core.errors import RefusedError
from rdma_images.publish.registry_kinds import RegistryKind, open_kind
from rdma_images.registry import registries
from rdma_images.registry.client import Repository
from rdma_images.registry.connection import Connection
from rdma_images.registry.reference import HOST, ImageReference
from rdma_images.registry.registries import Registry

LAYERS = "wheel-layers"  # their repository, beside those of the targets


@dataclass(frozen=True)
class Destination:
    """One registry of registries.yaml, in use."""

    name: str
    kind: RegistryKind
    immutable: bool
    connection: Connection = field(repr=False)

    def repository(self, target: str) -> Repository:
        """Return the repository of a target."""
        return Repository(self.connection, self.kind.repository(target))


def open_destination(name: str, registry: Registry) -> Destination:
    """Return a registry, opened. Asks the control plane for its host where only that knows it."""
    kind = open_kind(registry)
    return Destination(
        name=name, kind=kind, immutable=registry.immutable, connection=Connection(kind.host, kind.login, kind.tls)
    )


def open_repository(reference: ImageReference, registry: Registry) -> Repository:
    """Return the repository of a reference in a registry."""
    kind = open_kind(registry)
    return Repository(Connection(reference.host, kind.login, kind.tls), reference.repository)


def layers_repository(name_or_address: str) -> Repository:
    """Return the repository of wheel layers, by registry or address. Raises RefusedError."""
    configured = registries.load_if_present()
    if name_or_address in configured.registries:
        return open_destination(name_or_address, configured.registries[name_or_address]).repository(LAYERS)
    host, _, name = name_or_address.partition("/")
    if not HOST.fullmatch(host) or not registries.NAME.fullmatch(name):
        raise RefusedError(
            f"--cache-layers {name_or_address}: no registry of registries.yaml has this name, "
            "and it is not HOST/REPOSITORY\n"
            "write ghcr.io/team/wheel-layers, say"
        )
    return Repository(open_destination(host, configured.for_host(host)).connection, name)
