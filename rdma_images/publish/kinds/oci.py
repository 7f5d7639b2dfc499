"""Any registry that speaks the distribution protocol: nothing to create, credentials by reference or from docker."""

import docker.auth
from docker.credentials.errors import StoreError

from rdma_images.core.errors import RefusedError
from rdma_images.publish.kinds.base import Prepared, joined
from rdma_images.registry.credentials import Login, resolve
from rdma_images.registry.registries import Credentials, Oci

# Under this name docker's config and the credential helpers keep identity tokens instead of passwords.
_TOKEN_USER = "<token>"


class OciKind:
    """A registry with user and password, a token, or nothing."""

    def __init__(self, registry: Oci) -> None:
        self._registry = registry
        self.host = registry.host
        self.tls = registry.tls

    def login(self) -> Login | None:
        """From the references in registries.yaml, or from docker's config and its credential helpers."""
        credentials = self._registry.credentials
        if isinstance(credentials, Credentials):
            return from_references(credentials)
        return from_docker_config(self.host) if credentials == "docker-config" else None

    def repository(self, target: str) -> str:
        """prefix/target."""
        return joined(self._registry.prefix, target)

    def prepare(self, name: str, _moving: tuple[str, ...] = (), /) -> Prepared:
        """A push creates it, where the registry allows that."""
        return Prepared(name)


def from_references(credentials: Credentials) -> Login:
    """The login that the references lead to. Raises RefusedError where one leads nowhere."""
    if credentials.token is not None:
        return Login(bearer=resolve(credentials.token))
    if credentials.identity_token is not None:
        return Login(identity_token=resolve(credentials.identity_token))
    assert credentials.username is not None
    assert credentials.password is not None
    return Login(username=resolve(credentials.username), password=resolve(credentials.password))


def from_docker_config(host: str) -> Login | None:
    """What the user's docker config, or a credential helper it names, has for `host`; None when it has nothing."""
    try:
        found = docker.auth.load_config().resolve_authconfig(host)
    except (docker.errors.DockerException, StoreError) as error:
        raise RefusedError(
            f"docker's config has no usable credentials for {host}: {error}\n"
            "log in with docker again, or name credentials in registries.yaml"
        ) from None
    if not found:
        return None
    if token := found.get("IdentityToken") or found.get("identitytoken"):
        return Login(identity_token=token)
    username = found.get("Username") or found.get("username") or ""
    password = found.get("Password") or found.get("password") or ""
    if username == _TOKEN_USER:
        return Login(identity_token=password)
    return Login(username=username, password=password) if username else None
