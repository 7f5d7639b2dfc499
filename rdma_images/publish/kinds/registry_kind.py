"""The interface of every kind of registry."""

from dataclasses import dataclass
from typing import Protocol

from rdma_images.registry.credentials import Login


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
