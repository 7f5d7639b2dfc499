"""Azure Container Registry: exchange an Entra token for the registry's refresh token."""

import requests
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import DefaultAzureCredential

from rdma_images.core import http
from rdma_images.core.errors import first_line
from rdma_images.publish.kinds import PreparedRepository, join_path
from rdma_images.registry import registry_errors
from rdma_images.registry.connection import REGISTRY_TIMEOUT_SECONDS, parse_document
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import AcrAzure, is_loopback

# Azure's own name for "the password is a refresh token".
_TOKEN_USER = "00000000-0000-0000-0000-000000000000"
_SCOPE = "https://containerregistry.azure.net/.default"


class AcrAzureKind:
    """One registry of Azure."""

    def __init__(self, registry: AcrAzure) -> None:
        self._registry = registry
        self.host = registry.host
        self.tls = registry.tls
        self._credential = DefaultAzureCredential()

    def login(self) -> Login | None:
        """Return a refresh token of the registry, used as a password."""
        try:
            access = self._credential.get_token(_SCOPE).token
        except ClientAuthenticationError as error:
            first = first_line(error)
            raise registry_errors.UnauthorizedError(
                f"there are no Azure credentials for {self.host}: {first}\nrun `az login`, or set a managed identity"
            ) from None
        scheme = "http" if self.tls is False or (self.tls is None and is_loopback(self.host)) else "https"
        form = {"grant_type": "access_token", "service": self.host, "access_token": access}
        try:
            with http.session() as session:
                response = session.post(
                    f"{scheme}://{self.host}/oauth2/exchange", data=form, timeout=REGISTRY_TIMEOUT_SECONDS
                )
        except requests.RequestException as error:
            raise registry_errors.transport_error(self.host, error) from None
        if response.status_code != 200:
            raise registry_errors.status_error(self.host, "a token", response.status_code, response.text)
        body = parse_document(response.content, f"the refresh token of {self.host}")
        return Login(username=_TOKEN_USER, password=str(body.get("refresh_token") or ""))

    def repository(self, target: str) -> str:
        """Return prefix/target."""
        return join_path(self._registry.prefix, target)

    def prepare(self, name: str, _moving: tuple[str, ...] = (), /) -> PreparedRepository:
        """Return the name: a push creates the repository."""
        return PreparedRepository(name)
