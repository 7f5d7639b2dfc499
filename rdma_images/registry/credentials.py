"""Credentials by reference: settings name where a secret is kept, never the secret."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RefusedError

FORMS = "env:NAME or file:PATH"
_HELPER = "rdma-images"
_LOGIN_VARIABLE = "RDMA_IMAGES_LOGIN"  # where the helper finds the login, in the environment of one child process


@dataclass(frozen=True)
class Login:
    """A registry's credentials: name and password.

    The password is out of the repr, so that no log and no traceback shows it.
    """

    username: str
    password: str = field(repr=False)

    def for_docker(self) -> dict[str, str]:
        """Return the login for docker's API, which sends it and writes it nowhere."""
        return {"username": self.username, "password": self.password}


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


@contextmanager
def docker_environment(
    host: str, login: Login | None, base: Mapping[str, str] = os.environ
) -> Iterator[Mapping[str, str]]:
    """Yield the environment `base` for a docker, buildx or cosign process, with a login for `host`.

    They take logins from docker's config only. The config made here, else like that of `base`, names a credential
    helper, which prints what the environment of this one process holds: the login reaches no disk and no command line.
    """
    if login is None:
        yield base
        return
    docker_folder = Path(base.get("DOCKER_CONFIG") or Path.home() / ".docker")
    with tempfile.TemporaryDirectory(prefix="rdma-images-docker-") as name:
        folder = Path(name)
        for entry in docker_folder.iterdir() if docker_folder.is_dir() else ():  # plugins, builders, contexts
            (folder / entry.name).symlink_to(entry)
        config_path = folder / "config.json"
        config = json.loads(config_path.read_bytes()) if config_path.exists() else {}
        config["credHelpers"] = {**config.get("credHelpers", {}), host: _HELPER}
        config_path.unlink(missing_ok=True)
        config_path.write_text(json.dumps(config), encoding="utf-8")
        helper = folder / f"docker-credential-{_HELPER}"
        helper.write_text(f'#!/bin/sh\nprintf %s "${_LOGIN_VARIABLE}"\n', encoding="utf-8")
        helper.chmod(0o700)
        answer = {"ServerURL": host, "Username": login.username, "Secret": login.password}
        yield {
            **base,
            "DOCKER_CONFIG": name,
            "PATH": f"{name}{os.pathsep}{base.get('PATH', os.defpath)}",
            _LOGIN_VARIABLE: json.dumps(answer),
        }
