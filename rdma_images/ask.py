"""One short question to one address: does it have the source, and how large is it."""

import platform
import shutil

import requests

from rdma_images import web
from rdma_images.engine import bootstrap, hostapt
from rdma_images.errors import RdmaImagesError
from rdma_images.mirrors import Mirrors
from rdma_images.publish import client, http
from rdma_images.publish import secrets as publish_secrets
from rdma_images.sources import BUILD_PLATFORM

TIMEOUT = (2.5, 3.0)  # seconds to connect, seconds to the first byte: a preflight answers in a few seconds
HUB = "registry-1.docker.io"  # where the registry of docker.io answers. Source: docs.docker.com/reference/api/registry

Answer = tuple[bool, str]  # whether it has the source, and what it said


def download(address: str, mirrors: Mirrors) -> Answer:
    """A file: there, and its size where the server says it."""
    if path := web.local(address):
        return (True, megabytes(path.stat().st_size)) if path.is_file() else (False, "no such file")
    try:
        with web.request("HEAD", address, mirrors, TIMEOUT) as answer:
            return True, ", ".join([str(answer.status_code), *_size(answer)])
    except web.StatusError as error:
        if error.status not in (403, 405, 501):
            return False, str(error)
    except requests.RequestException as error:
        return False, web.reason(error, mirrors)
    # Some stores sign addresses for GET alone.
    return _first_byte(address, mirrors)


def apt(address: str, suite: str, mirrors: Mirrors) -> Answer:
    """An apt archive: its signed index of a suite is there."""
    found, said = download(f"{address}/dists/{suite}/InRelease", mirrors)
    return found, f"{suite}: {said}"


def index(address: str, project: str, mirrors: Mirrors) -> Answer:
    """A package index: it knows a project."""
    found, said = download(f"{address.rstrip('/')}/{project}/", mirrors)
    return found, said.split(",")[0] if found else said


def image(reference: str, mirrors: Mirrors) -> Answer:
    """A registry: it has the image with this tag or digest."""
    try:
        digest = registry_digest(reference, mirrors)
    except RdmaImagesError as error:
        return False, str(error)
    return (True, digest[:19]) if digest else (False, "the registry has no such image")


def registry_digest(reference: str, mirrors: Mirrors) -> str | None:
    """The digest that a full reference leads to in its registry; None where there is no such image.

    Raises RdmaImagesError when the registry does not answer, or wants another login.
    """
    name, _, rest = reference.partition("/")
    repository, tag = _split_tag(rest)
    login = mirrors.login(name)
    known = publish_secrets.Login(login.username, login.password) if login else None
    connection = http.Connection(
        HUB if name == "docker.io" else name, lambda: known, ca=mirrors.ca_bundle, timeout=TIMEOUT
    )
    return client.Repository(connection, repository).head(tag)


def can_bootstrap(name: str, image_platform: str) -> bool:
    """Whether this host can make the base from Debian's archive: it is Debian, has apt, and is of that platform."""
    machine = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}.get(platform.machine())
    if name not in bootstrap.SUITES or image_platform not in (machine, BUILD_PLATFORM) or not shutil.which("apt-get"):
        return False
    try:
        hostapt.debian()
    except RdmaImagesError:
        return False
    return True


def bootstrapped(name: str) -> Answer:
    """A base made on this host: there already, or to be made from the archive, which is asked about as itself."""
    made = bootstrap.known(name)
    return True, f"made before, {made.tar}" if made else "made from Debian's archive on this host"


def megabytes(size: int) -> str:
    """A size in bytes, for people."""
    return f"{size / 1e6:.1f} MB" if size < 10e6 else f"{size / 1e6:.0f} MB"


def _first_byte(address: str, mirrors: Mirrors) -> Answer:
    try:
        with web.request("GET", address, mirrors, TIMEOUT, {"Range": "bytes=0-0"}) as answer:
            return True, str(answer.status_code)
    except web.StatusError as error:
        return False, str(error)
    except requests.RequestException as error:
        return False, web.reason(error, mirrors)


def _size(answer: requests.Response) -> list[str]:
    length = answer.headers.get("Content-Length", "")
    return [megabytes(int(length))] if length.isdigit() and int(length) else []


def _split_tag(rest: str) -> tuple[str, str]:
    """Repository and reference: after "@" a digest, after ":" a tag, else the tag that docker takes."""
    if "@" in rest:
        repository, _, digest = rest.partition("@")
        return repository.partition(":")[0], digest
    repository, _, tag = rest.partition(":")
    return repository, tag or "latest"
