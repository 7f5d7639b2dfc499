"""The kinds of registries. Each module is imported when a registry of its kind is used, and its SDK with it."""

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from rdma_images.core.errors import RefusedError
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import Registry


@dataclass(frozen=True)
class PreparedRepository:
    """A repository that may be pushed to. `created` says what was created for it, in words; empty when it was there."""

    name: str
    created: tuple[str, ...] = ()


class RegistryKind(Protocol):
    """A registry of one kind: where it is, who we are there, and how a repository comes to be."""

    @property
    def host(self) -> str:
        """Return the host, with the port where there is one, under which docker and this tool address it."""

    @property
    def tls(self) -> bool | None:
        """Return whether to use TLS; None for TLS unless the host is on the loopback interface."""

    def login(self) -> Login | None:
        """Return fresh credentials, or None for none. Raises a PublishError or RefusedError."""

    def repository(self, target: str) -> str:
        """Return the repository's name for a target, prefix and namespace included."""

    def prepare(self, name: str, moving: tuple[str, ...] = (), /) -> PreparedRepository:
        """Create the repository where the registry needs that; `moving` are the tags that must stay movable in it.

        Raises DeniedError when it may not be created.
        """


def join_path(*parts: str) -> str:
    """Return a repository's name of its non-empty parts."""
    return "/".join(part.strip("/") for part in parts if part)


__all__ = ["PreparedRepository", "RegistryKind", "open_kind"]

# kind -> module, class, the optional extra that brings its SDK (None: nothing beside what is installed)
_KINDS = {
    "oci": ("oci", "OciKind", None),
    "ecr": ("ecr", "EcrKind", "ecr"),
    "ecr-public": ("ecr", "EcrPublicKind", "ecr"),
    "acr-aliyun": ("acr_aliyun", "AcrAliyunKind", "acr"),
    "acr-azure": ("acr_azure", "AcrAzureKind", "azure"),
}


def open_kind(registry: Registry) -> RegistryKind:
    """Return the registry, ready to be asked. Raises RefusedError when the SDK of its kind is not installed."""
    module, name, extra = _KINDS[registry.kind]
    try:
        opened = getattr(import_module(f"{__name__}.{module}"), name)(registry)
    except ModuleNotFoundError as error:
        raise RefusedError(
            f"a registry of kind {registry.kind} needs {error.name}, which is not installed\n"
            f"pip install 'rdma-images[{extra}]'"
        ) from None
    return cast(RegistryKind, opened)
