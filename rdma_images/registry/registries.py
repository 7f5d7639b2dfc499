"""registries.yaml: a team's registries by name, without secrets."""

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, field_validator

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.paths import DATA, PROJECT, display_path
from rdma_images.registry.credentials import check_reference
from rdma_images.registry.reference import HOST

EXAMPLE = DATA / "registries.example.yaml"

SecretReference = Annotated[str, AfterValidator(check_reference)]

# The distribution specification's repository name, one or more components.
NAME = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")


class LoginReferences(yaml_file.Strict):
    """References to a user name and a password."""

    username: SecretReference = Field(description="env:NAME or file:PATH.")
    password: SecretReference = Field(description="env:NAME or file:PATH.")


def _check_host(text: str) -> str:
    if not HOST.fullmatch(text):
        raise ValueError(f"{text!r} is not a host: write name or name:port, without https:// and without a path")
    return text


Host = Annotated[str, AfterValidator(_check_host)]


def _check_word(text: str) -> str:
    """Return a word for credentials, never repeating another, perhaps a password."""
    if text not in ("none", "docker-config"):
        raise ValueError("write none, docker-config, or username and password by reference")
    return text


# Told apart by their form, so that an error is about the form that was meant.
Access = Annotated[
    Annotated[str, AfterValidator(_check_word), WithJsonSchema({"enum": ["none", "docker-config"]}), Tag("word")]
    | Annotated[LoginReferences, Tag("references")],
    Discriminator(lambda given: "word" if isinstance(given, str) else "references"),
]


class _Common(yaml_file.Strict):
    prefix: str = Field(default="", description='Before every repository: "training" gives training/efa-pytorch.')
    immutable: bool = Field(
        default=False, description="A full tag stays with its digest; a rebuild gets a tag of its own."
    )

    @field_validator("prefix")
    @classmethod
    def _prefix_is_a_name(cls, value: str) -> str:
        if value and not NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a repository prefix: lower case letters, digits, '.', '_', '-' and '/'")
        return value


class Oci(_Common):
    """Any registry that speaks the OCI distribution protocol."""

    kind: Literal["oci"]
    host: Host = Field(description="The name, with a port where it is not 443.")
    credentials: Access = Field(
        default="docker-config", description="none, docker-config (`docker login`), or username and password."
    )
    tls: bool | None = Field(default=None, description="By default TLS, except on the loopback interface.")


class Ecr(_Common):
    """Amazon Elastic Container Registry. Credentials come from boto3's chain (OIDC role, profile, instance)."""

    kind: Literal["ecr"]
    account: Annotated[str, Field(pattern=r"^\d{12}$")]
    region: str
    profile: str | None = None
    host: Host | None = Field(default=None, description="Instead of the name that AWS gives: a PrivateLink name.")


class AcrAliyun(_Common):
    """Alibaba Cloud Container Registry, Enterprise. A Personal one is of kind oci: its password is a fixed one."""

    kind: Literal["acr-aliyun"]
    region: str
    namespace: str
    instance: str = Field(description="The instance's id, cri-….")
    host: Host = Field(description="<name>-registry.<region>.cr.aliyuncs.com.")
    endpoint: str | None = Field(default=None, description="Of the control plane, instead of cr.<region>.aliyuncs.com.")


Registry = Annotated[Oci | Ecr | AcrAliyun, Field(discriminator="kind")]


class Registries(yaml_file.Strict):
    """The content of registries.yaml."""

    registries: dict[str, Registry] = Field(description="The registries, by the name that `--to` takes.")

    def pick(self, names: Sequence[str]) -> Mapping[str, Registry]:
        """Return the named registries. Raises RefusedError for an unknown name, or without a name."""
        if not names:
            raise RefusedError(
                f"no registry is named\nsay where to: --to NAME. Known: {', '.join(self.registries) or 'none'}"
            )
        for name in names:
            if name not in self.registries:
                raise RefusedError(f"registries.yaml has no registry {name!r}\n{suggestion(name, self.registries)}")
        return {name: self.registries[name] for name in names}

    def for_host(self, host: str) -> Registry:
        """Return the registry of a host; an unknown one uses docker's credentials."""
        for registry in self.registries.values():
            if _has_host(registry, host):
                return registry
        return Oci(kind="oci", host=host)


def _has_host(registry: Registry, host: str) -> bool:
    if isinstance(registry, Ecr) and host.startswith(f"{registry.account}.dkr.ecr.{registry.region}."):
        return True
    return registry.host == host


def registries_file() -> Path:
    """Return the file's path: RDMA_IMAGES_REGISTRIES, or the project's registries.yaml."""
    return Path(os.environ.get("RDMA_IMAGES_REGISTRIES") or PROJECT / "registries.yaml")


def load(path: Path | None = None) -> Registries:
    """Return the registries of a file. Raises RefusedError with file and line."""
    path = path or registries_file()
    if not files.exists(path):
        raise RefusedError(f"{path}: no such file\ncopy {display_path(EXAMPLE)} and keep the registries you use")
    return yaml_file.load(path, Registries)


def load_if_present() -> Registries:
    """Return the registries of the file; empty without a file."""
    return load() if files.exists(registries_file()) else Registries(registries={})


def is_loopback(host: str) -> bool:
    """Return whether `host` (with or without a port) is this machine and nothing else.

    A name other than localhost is not resolved: what it means is decided by somebody else.
    """
    parts = HOST.fullmatch(host)
    if parts is None:
        return False
    if parts["name"] == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts["name"] or parts["v6"]).is_loopback
    except ValueError:
        return False
