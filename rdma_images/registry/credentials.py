"""Credentials by reference: settings name where a secret is kept, never the secret."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from rdma_images.core import files
from rdma_images.core.errors import RefusedError

FORMS = "env:NAME or file:PATH"


@dataclass(frozen=True)
class Login:
    """A registry's credentials: name and password, an identity token or a bearer token.

    Secrets are out of the repr, so that no log and no traceback shows them.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)  # an OAuth2 refresh token, as docker's config keeps it
    bearer: str = field(default="", repr=False)  # sent as it is

    def for_docker(self) -> dict[str, str]:
        """Return the login for docker's API, which sends it and writes it nowhere."""
        if self.identity_token:
            return {"identitytoken": self.identity_token}
        if self.bearer:
            return {"registrytoken": self.bearer}
        return {"username": self.username, "password": self.password}

    def secrets(self) -> tuple[str, ...]:
        """Return every text that must not be shown, longest first."""
        secrets = {text for text in (self.password, self.identity_token, self.bearer) if text}
        return tuple(sorted(secrets, key=len, reverse=True))


def check_reference(text: str) -> str:
    """Return a valid reference. Raises ValueError, without the text, for a secret."""
    scheme, _, value = text.partition(":")
    if scheme not in ("env", "file") or not value:
        raise ValueError(f"a secret is never written here, only where it is: {FORMS}")
    return text


def resolve_secret(reference: str, environ: Mapping[str, str] = os.environ, named_in: str = "registries.yaml") -> str:
    """Return the secret of a reference. Raises RefusedError for a missing variable or file."""
    scheme, _, target = reference.partition(":")
    if scheme == "env":
        if value := environ.get(target):
            return value
        raise RefusedError(f"{named_in}: the environment has no {target}\nset it")
    try:
        return files.read_text(files.expand_user(target)).strip()
    except files.FileError as error:
        raise RefusedError(f"{named_in}: the credential cannot be read: {error}") from None
