"""Any registry of the distribution protocol: logins by reference or from docker."""

import docker.auth
from docker.credentials.errors import StoreError

from rdma_images.core.errors import RefusedError
from rdma_images.publish.registry_kinds import join_path
from rdma_images.registry.credentials import Login, resolve_secret
from rdma_images.registry.registries import LoginReferences, Oci


class OciKind:
    """A registry with user and password, or nothing."""

    def __init__(self, registry: Oci) -> None:
        self._registry = registry
        self.host = registry.host
        self.tls = registry.tls

    def login(self) -> Login | None:
        """Return the login of registries.yaml, or of docker's config and helpers."""
        credentials = self._registry.credentials
        if isinstance(credentials, LoginReferences):
            return Login(resolve_secret(credentials.username), resolve_secret(credentials.password))
        return from_docker_config(self.host) if credentials == "docker-config" else None

    def repository(self, target: str) -> str:
        """Return prefix/target."""
        return join_path(self._registry.prefix, target)

    def ensure_repository(self, _name: str, _moving: tuple[str, ...] = (), /) -> tuple[str, ...]:
        """Return nothing: a push creates the repository, where the registry allows that."""
        return ()


def from_docker_config(host: str) -> Login | None:
    """Return the login that docker's config, or a credential helper it names, has for `host`."""
    try:
        entry = docker.auth.load_config().resolve_authconfig(host)
    except (docker.errors.DockerException, StoreError) as error:
        raise RefusedError(
            f"docker's config has no usable credentials for {host}: {error}\n"
            "log in with docker again, or name credentials in registries.yaml"
        ) from None
    if not entry:
        return None
    username = entry.get("Username") or entry.get("username") or ""
    password = entry.get("Password") or entry.get("password") or ""
    return Login(username=username, password=password) if username else None
