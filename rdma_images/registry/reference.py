"""References of images, host/repository:tag or host/repository@sha256:…, as a type."""

import re
from dataclasses import dataclass

from rdma_images.core.errors import RefusedError

DOCKER_HUB = "docker.io"
HUB_HOST = "registry-1.docker.io"  # where Docker Hub answers. Source: docs.docker.com/reference/api/registry

# A host as references have it: a name or an address, an IPv6 one in brackets, and perhaps a port.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOST = re.compile(rf"(?:(?P<name>{_LABEL}(?:\.{_LABEL})*)|\[(?P<v6>[0-9A-Fa-f:.]+)\])(?::\d{{1,5}})?")


@dataclass(frozen=True)
class ImageReference:
    """An image in a registry; `selector` is its tag, or its digest with algorithm."""

    host: str
    repository: str
    selector: str

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}{'@' if ':' in self.selector else ':'}{self.selector}"


def parse_reference(text: str) -> ImageReference:
    """Return a reference, with "latest" as default tag. Raises RefusedError without registry."""
    host, slash, path = text.partition("/")
    if not slash or not names_registry(host) or not HOST.fullmatch(host):
        raise RefusedError(f"{text!r} names no registry\nwrite host/repository:tag or host/repository@sha256:…")
    name, _, digest = path.partition("@")
    repository, _, tag = name.partition(":")
    return ImageReference(host, repository, digest or tag or "latest")


def with_registry(text: str) -> str:
    """Return a reference with its registry: docker.io/library/ubuntu:24.04."""
    host, slash, _ = text.partition("/")
    if slash and names_registry(host):
        return text
    return f"{DOCKER_HUB}/{text}" if slash else f"{DOCKER_HUB}/library/{text}"


def with_registry_host(text: str) -> str:
    """Return a reference with its registry's API host, as registry-1.docker.io."""
    host, _, path = with_registry(text).partition("/")
    if host != DOCKER_HUB:
        return text
    return f"{HUB_HOST}/{path}" if "/" in path else f"{HUB_HOST}/library/{path}"


def names_registry(host: str) -> bool:
    """Return whether the part before the first "/" is a registry, not a user."""
    return "." in host or ":" in host or host == "localhost"
