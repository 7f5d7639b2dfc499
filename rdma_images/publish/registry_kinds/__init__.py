"""The kinds of registries; a module, and its SDK, is imported when its kind is used."""

from importlib import import_module
from typing import Protocol, cast

from rdma_images.core.errors import RefusedError
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import Registry


class RegistryKind(Protocol):
    """A registry of one kind: where it is, who we are there, and how a repository comes to be."""

    @property
    def host(self) -> str:
        """Return the registry's host, with a port where there is one."""

    @property
    def tls(self) -> bool | None:
        """Return whether to use TLS; None for TLS unless the host is on the loopback interface."""

    def login(self) -> Login | None:
        """Return fresh credentials; None if the registry needs none. Raises a RegistryError or RefusedError."""

    def repository(self, target: str) -> str:
        """Return the repository's name for a target, prefix and namespace included."""

    def ensure_repository(self, name: str, moving: tuple[str, ...] = (), /) -> tuple[str, ...]:
        """Create the repository where necessary, and return what was created; the tags `moving` must stay movable.

        Raises RegistryError when it may not be created.
        """


def join_path(*parts: str) -> str:
    """Return a repository's name of its non-empty parts."""
    return "/".join(part.strip("/") for part in parts if part)


# kind -> module, class, the optional extra that brings its SDK (None: nothing beside what is installed)
_KINDS = {
    "oci": ("oci", "OciKind", None),
    "ecr": ("ecr", "EcrKind", "ecr"),
    "acr-aliyun": ("acr_aliyun", "AcrAliyunKind", "acr"),
}


def open_kind(registry: Registry) -> RegistryKind:
    """Return the registry's kind. Raises RefusedError where its SDK is not installed."""
    module, name, extra = _KINDS[registry.kind]
    try:
        opened = getattr(import_module(f"{__name__}.{module}"), name)(registry)
    except ModuleNotFoundError as error:
        raise RefusedError(
            f"a registry of kind {registry.kind} needs {error.name}, which is not installed\n"
            f"pip install 'rdma-images[{extra}]'"
        ) from None
    return cast(RegistryKind, opened)
