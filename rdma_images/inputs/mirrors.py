"""Mirrors and logins: mirrors.yaml has addresses that replace the sources' own."""

import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

import certifi
from pydantic import Field, field_validator

from rdma_images.core import files, paths, yaml_file
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.source import Source
from rdma_images.registry import credentials
from rdma_images.registry.credentials import Login

FORM = "https://host:port/path, file:///path or /path"
SCHEMES = ("https", "http", "file")
KINDS = ("base", "apt", "index", "download")
# Where distributions keep the bundle that their certificate updates write. Python's default may be another file.
SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # the first that is set counts


class MirrorLogin(yaml_file.Strict):
    """A login as mirrors.yaml has it; the password itself is never in the file."""

    username: str
    password: str = Field(description="env:NAME or file:PATH.")

    @field_validator("password")
    @classmethod
    def _is_reference(cls, text: str) -> str:
        return credentials.check_reference(text)


class MirrorsFile(yaml_file.Document):
    """mirrors.yaml: addresses in place of the vendors' own, and what opens them."""

    sources: dict[str, str] = Field(
        default_factory=dict,
        description="The address that replaces a source's own, by the name that `invoke sources` shows.",
    )
    ca_bundle: Path | None = Field(default=None, description="Certificates for downloads and for steps of a build.")
    credentials: dict[str, MirrorLogin] = Field(default_factory=dict, description="Logins by host.")

    @field_validator("credentials", mode="before")
    @classmethod
    def _are_by_host(cls, logins: object) -> object:
        """Refuse a login in the place of a host, before an error names it."""
        if isinstance(logins, dict) and any("@" in name for name in logins):
            raise ValueError("a name is a host, with its port: write user and password below it")
        return logins

    @field_validator("ca_bundle", mode="before")
    @classmethod
    def _is_file(cls, bundle: object) -> object:
        if isinstance(bundle, str) and "://" in bundle:
            raise ValueError("an address is no file: name a PEM file with the authorities to trust")
        return bundle


@dataclass(frozen=True)
class Mirrors:
    """The addresses that replace the sources' own. A source without an entry keeps its own."""

    ca_bundle: Path
    addresses: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by name: address, where it is written
    logins: Mapping[str, Login] = field(default_factory=dict)  # by host, with the port where it is not the scheme's own

    def address(self, source: Source) -> str | None:
        """Return the mirror of a source, by its id, component or kind; None without one."""
        for name in (source.id, source.component, source.kind):
            if entry := self.addresses.get(name):
                return resolve_entry(entry[0], source)
        return None

    def login(self, address: str) -> Login | None:
        """Return the login for the host of an address; None where the file has none."""
        return self.logins.get(host(address))

    def with_login_for(self, address: str, login: Login) -> "Mirrors":
        """Return these mirrors with the login for one more host."""
        return replace(self, logins={**self.logins, host(address): login})

    def with_login(self, address: str) -> str:
        """Return the address with its host's login in it, never to be shown."""
        if not (login := self.login(address)):
            return address
        parts = urlsplit(address)
        return urlunsplit(
            parts._replace(netloc=f"{quote(login.username)}:{quote(login.password, safe='')}@{parts.netloc}")
        )

    def check(self, components: Iterable[str]) -> None:
        """Raise RefusedError for an entry that names no source or component."""
        names = list(dict.fromkeys([*KINDS, *components]))
        for name, (_, where) in self.addresses.items():
            if not any(name == word or re.match(rf"{re.escape(word)}-\d", name) for word in names):
                raise RefusedError(f"{where}: {name} is no source\n{suggestion(name, names)}")


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Mirrors:
    """Return the mirrors of mirrors.yaml, or of `path`, or of the file that RDMA_IMAGES_MIRRORS names.

    Raises RefusedError, with file and line, for what cannot be read or used.
    """
    named_file = path or (Path(environ["RDMA_IMAGES_MIRRORS"]) if environ.get("RDMA_IMAGES_MIRRORS") else None)
    file = named_file or paths.PROJECT / "mirrors.yaml"
    content = yaml_file.load(file, MirrorsFile) if named_file or files.exists(file) else MirrorsFile()
    addresses = {name: (address, content.where("sources", name)) for name, address in content.sources.items()}
    for address, where in addresses.values():
        _check_address(address, where)
    logins = {
        key: Login(
            credential.username,
            credentials.resolve_secret(credential.password, environ, content.where("credentials", key)),
        )
        for key, credential in content.credentials.items()
    }
    return Mirrors(trusted_bundle(content.ca_bundle, content.where("ca-bundle"), environ), addresses, logins)


def resolve_entry(address: str, source: Source) -> str:
    """Return the address of a source by an entry, which may be a prefix that ends with "/".

    After the prefix comes the file name of a download, or the repository and tag of a base. The entry of an archive or
    index is always the whole address.
    """
    if source.kind in ("apt", "index") or not address.endswith("/"):
        return address.rstrip("/") if source.kind in ("apt", "index") else address
    if source.kind == "base":
        return address + source.upstream.split("/", 1)[1]
    return urljoin(address, urlsplit(source.upstream).path.rsplit("/", 1)[-1])


def sibling_address(address: str, upstream: str, sibling: str) -> str:
    """Return the mirror's address of `sibling`, which is beside `upstream`.

    A signature keeps its ending, a key its name.
    """
    if sibling.startswith(upstream):
        return address + sibling.removeprefix(upstream)
    return urljoin(address, urlsplit(sibling).path.rsplit("/", 1)[-1])


def host(address: str) -> str:
    """Return the host, and the port where written, of an address or image reference."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    return parts.netloc.rpartition("@")[2]


def _check_address(address: str, where: str) -> None:
    """Raise RefusedError for an invalid address, or one with a login, a query or a fragment; it is not repeated."""
    try:
        parts = urlsplit(address if "://" in address or address.startswith((".", "/", "~")) else f"//{address}")
        (parts.hostname or "").encode("idna")  # a UnicodeError, which is a ValueError, for what no name server can have
        usable = address.isprintable() and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise RefusedError(f"{where}: not a valid address\nwrite {FORM}")
    if split_login(address)[1]:
        raise RefusedError(f"{where}: a login in the address\nwrite it under credentials, by the host")
    if "://" in address and parts.scheme not in SCHEMES:
        raise RefusedError(f"{where}: {parts.scheme}:// is no supported scheme\n{suggestion(parts.scheme, SCHEMES)}")
    if "://" in address and (parts.query or parts.fragment):
        raise RefusedError(
            f"{where}: the address has a query or a fragment, which is lost where a file's name is added\n"
            f"write {FORM}, and a login below credentials"
        )


def split_login(address: str) -> tuple[str, Login | None]:
    """Return an address without its login, and the login or None."""
    is_bare = "://" not in address and not address.startswith(("/", "./", "../", "~"))
    parts = urlsplit(f"//{address}" if is_bare else address)
    if not parts.netloc or parts.username is None:
        return address, None
    login = Login(unquote(parts.username), unquote(parts.password or ""))
    return urlunsplit(parts._replace(netloc=host(address))).removeprefix("//" if is_bare else ""), login


def trusted_bundle(bundle: Path | None, named_in: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the CA bundle: the one named, the environment's, the system's, or certifi's.

    `named_in` says where `bundle` was written. Raises RefusedError for a bundle that is named and has no certificate.
    """
    if bundle:
        return _usable_bundle(files.expand_user(str(bundle)), named_in)
    for variable in CA_VARIABLES:
        if value := environ.get(variable):
            return _usable_bundle(Path(value), f"${variable}")
    candidates = map(Path, (ssl.get_default_verify_paths().openssl_cafile, *SYSTEM_BUNDLES))
    return next(filter(Path.is_file, candidates), Path(certifi.where()))


def _usable_bundle(path: Path, named_in: str) -> Path:
    """Return the path of a file with certificates, which whoever uses it parses."""
    try:
        if b"-----BEGIN " in path.read_bytes():
            return path.resolve()
        reason = "it has no certificate"
    except (OSError, ValueError) as error:  # a ValueError for a name that no file can have
        reason = getattr(error, "strerror", None) or str(error)
    raise RefusedError(
        f"{named_in}: the CA bundle {path} cannot be used: {reason}\nname a PEM file with the authorities to trust"
    )
