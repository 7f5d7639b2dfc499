"""Where sources come from instead of their upstream: mirrors.yaml and the environment, logins by reference."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from pydantic import Field, field_validator

from rdma_images import ca, paths, yamlfile
from rdma_images.errors import RefusedError, near
from rdma_images.model import Source

VARIABLE = "RDMA_IMAGES_MIRROR_"
FORMS = "env:NAME or file:PATH"
SCHEMES = ("https", "http", "file")
KINDS = ("base", "apt", "index", "download")


class Credential(yamlfile.Strict):
    """A login as mirrors.yaml has it; the password itself is never in the file."""

    username: str
    password: str

    @field_validator("password")
    @classmethod
    def _is_reference(cls, text: str) -> str:
        form, _, place = text.partition(":")
        if form not in ("env", "file") or not place:
            raise ValueError(f"a password is never written here, only where it is: {FORMS}")
        return text


class File(yamlfile.Document):
    """mirrors.yaml; see docs/mirrors.md."""

    sources: dict[str, str] = Field(default_factory=dict)
    ca_bundle: Path | None = None
    credentials: dict[str, Credential] = Field(default_factory=dict)


@dataclass(frozen=True)
class Login:
    """Who to be at one host. The password is out of the repr, so that no log and no traceback shows it."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Mirrors:
    """What replaces the sources' own addresses; without an entry a source keeps its own."""

    ca_bundle: Path
    addresses: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # by plain name: address, where it is written
    logins: Mapping[str, Login] = field(default_factory=dict)  # by host, with the port where it is not the scheme's own

    def address(self, source: Source) -> str | None:
        """The address that replaces the source's own: looked up by its id, its component, then its kind."""
        for name in (source.id, source.component, source.kind):
            if entry := self.addresses.get(plain(name)):
                return resolved(entry[0], source)
        return None

    def login(self, address: str) -> Login | None:
        """The login for the host of an address."""
        return self.logins.get(host(address))

    def knowing(self, address: str, login: Login) -> "Mirrors":
        """These mirrors with the login for one more host."""
        return replace(self, logins={**self.logins, host(address): login})

    def with_login(self, address: str) -> str:
        """The address with its host's login in it, for a client that takes no other: never to be shown."""
        if not (login := self.login(address)):
            return address
        parts = urlsplit(address)
        return urlunsplit(
            parts._replace(netloc=f"{quote(login.username)}:{quote(login.password, safe='')}@{parts.netloc}")
        )

    def check(self, components: Iterable[str]) -> None:
        """Refuse an entry that names no source: it would silently be ignored. `components` are all there are."""
        known = list(dict.fromkeys([*KINDS, *components]))
        for name, (_, written) in self.addresses.items():
            if not any(name == plain(word) or re.match(rf"{plain(word)}_\d", name) for word in known):
                word = name.lower().replace("_", "-")
                raise RefusedError(f"{written}: {word} is no source: {near(word, known)}")


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Mirrors:
    """Mirrors of mirrors.yaml (or `path`, or $RDMA_IMAGES_MIRRORS), over which the environment's stand.

    The environment's are RDMA_IMAGES_MIRROR_<SOURCE>=<address> and RDMA_IMAGES_CA_BUNDLE=<file>. Raises RefusedError
    for what cannot be read or used, naming file and line or the variable.
    """
    named = path or (Path(environ["RDMA_IMAGES_MIRRORS"]) if environ.get("RDMA_IMAGES_MIRRORS") else None)
    file = named or paths.PROJECT / "mirrors.yaml"
    content = yamlfile.load(file, File) if named or file.exists() else File()
    written = {plain(name): (address, content.where("sources", name)) for name, address in content.sources.items()}
    for variable, value in environ.items():
        if variable.startswith(VARIABLE) and value:
            written[variable.removeprefix(VARIABLE)] = (value, f"${variable}")
    logins = {
        key: Login(credential.username, secret(credential.password, environ, content.where("credentials", key)))
        for key, credential in content.credentials.items()
    }
    addresses = {}
    for name, (address, where) in written.items():
        bare, login = split_login(address)
        if "://" in bare and (scheme := urlsplit(bare).scheme) not in SCHEMES:
            raise RefusedError(f"{where}: {scheme}:// is nothing that is read here: {near(scheme, SCHEMES)}")
        addresses[name] = (bare, where)
        if login:
            logins[host(bare)] = login
    if bundle := environ.get("RDMA_IMAGES_CA_BUNDLE"):
        return Mirrors(ca.bundle(Path(bundle), "$RDMA_IMAGES_CA_BUNDLE", environ), addresses, logins)
    return Mirrors(ca.bundle(content.ca_bundle, content.where("ca-bundle"), environ), addresses, logins)


def plain(name: str) -> str:
    """A source's name as an environment variable can end with it: "efa-installer-1.50.0" is EFA_INSTALLER_1_50_0."""
    return re.sub(r"[^A-Z0-9]+", "_", name.upper())


def resolved(address: str, source: Source) -> str:
    """An entry for one source. One that ends with "/" is a prefix, under which the upstream's name is kept.

    The name is the file's for a download, the repository with its tag for a base; an archive and an index have none.
    """
    if source.kind in ("apt", "index") or not address.endswith("/"):
        return address.rstrip("/") if source.kind in ("apt", "index") else address
    if source.kind == "base":
        return address + source.upstream.split("/", 1)[1]
    return urljoin(address, urlsplit(source.upstream).path.rsplit("/", 1)[-1])


def beside(address: str, upstream: str, other: str) -> str:
    """Where what lies beside `upstream` lies beside `address`: a signature keeps its ending, a key its name."""
    if other.startswith(upstream):
        return address + other.removeprefix(upstream)
    return urljoin(address, urlsplit(other).path.rsplit("/", 1)[-1])


def host(address: str) -> str:
    """The host of an address, or of an image's reference, with the port where one is written."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    return parts.netloc.rpartition("@")[2]


def split_login(address: str) -> tuple[str, Login | None]:
    """An address without the login in it, and the login; so that no message and no file ever repeats it."""
    parts = urlsplit(address)
    if not parts.netloc or parts.username is None:
        return address, None
    login = Login(unquote(parts.username), unquote(parts.password or ""))
    return urlunsplit(parts._replace(netloc=host(address))), login


def secret(reference: str, environ: Mapping[str, str], named_in: str) -> str:
    """What a reference leads to. Raises RefusedError naming the variable or file that is missing."""
    form, _, place = reference.partition(":")
    if form == "env":
        if value := environ.get(place):
            return value
        raise RefusedError(f"{named_in}: the environment has no {place}: set it")
    try:
        return Path(place).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise RefusedError(f"{named_in}: {place} cannot be read: {error.strerror}") from None
