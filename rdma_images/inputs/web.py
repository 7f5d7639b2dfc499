"""Send HTTP requests with the configured CA bundle and logins; read file addresses."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests

from rdma_images.core import files, http
from rdma_images.inputs.mirrors import Mirrors


class StatusError(Exception):
    """A response with a status of 400 or above."""

    def __init__(self, status: int) -> None:
        super().__init__(http.describe_status(status))
        self.status = status


def local_path(address: str) -> Path | None:
    """Return the path of a file address, or of a bare path; None for an address on the network."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return files.expand_user(address) if not parts.scheme else None


@contextmanager
def request(
    method: str,
    address: str,
    mirrors: Mirrors,
    timeout: tuple[float, float],
    headers: Mapping[str, str] | None = None,
    retry_policy: http.RetryPolicy | None = None,
) -> Iterator[requests.Response]:
    """Send a request and provide the response, its body unread.

    A login goes to the host that it is written for, and to none that this one redirects to.

    Args:
        timeout: Seconds to connect, and seconds without a byte.

    Raises:
        StatusError: The status is 400 or above.
        requests.RequestException: There is no response.
    """
    login = mirrors.login(address)
    with (
        http.session(retry_policy) as session,
        session.request(
            method,
            address,
            headers={"Accept-Encoding": "identity", **(headers or {})},
            auth=(login.username, login.password) if login else None,
            # Here and not on the session, where the environment's bundle would win over the one in mirrors.yaml.
            verify=str(mirrors.ca_bundle),
            timeout=timeout,
            allow_redirects=True,
            stream=True,
        ) as response,
    ):
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            raise StatusError(response.status_code)
        yield response


def file_size(
    address: str, mirrors: Mirrors, timeout: tuple[float, float], retry_policy: http.RetryPolicy
) -> int | None:
    """Return the bytes of a file that is there; None where its server does not say.

    Asks for the first byte, because some stores sign addresses for GET alone.

    Raises:
        StatusError, requests.RequestException: As `request`.
        FileError: There is no such file on this machine.
    """
    if path := local_path(address):
        with files.raising_file_error(path):
            return path.stat().st_size
    with request("GET", address, mirrors, timeout, {"Range": "bytes=0-0"}, retry_policy) as response:
        headers = response.headers
        size = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length", "")
        return int(size) if size.isdigit() else None


def describe_error(error: Exception, mirrors: Mirrors) -> str:
    """Return why there was no response, as the end of a sentence."""
    description = http.describe_error(error)
    if description == http.UNTRUSTED:
        return f"its certificate is not trusted by {mirrors.ca_bundle}: name another ca-bundle in mirrors.yaml"
    return description
