"""One request over HTTP(S) with our trust and logins, and why it failed in words; file addresses beside it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests
from urllib3.exceptions import LocationParseError

from rdma_images.core import files, http
from rdma_images.inputs.mirrors import Mirrors


class StatusError(Exception):
    """The server answered, and not with what was asked for."""

    def __init__(self, status: int) -> None:
        super().__init__(http.status(status))
        self.status = status


def local(address: str) -> Path | None:
    """Return the path of a file address, or of a bare path; None for what is on the network."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return files.expanded(address) if not parts.scheme else None


@contextmanager
def request(
    method: str,
    address: str,
    mirrors: Mirrors,
    timeout: tuple[float, float],
    headers: Mapping[str, str] | None = None,
    patience: http.Patience | None = None,
) -> Iterator[requests.Response]:
    """Provide an answer whose body is still to be read, asked for again as `patience` says.

    `timeout`: seconds to connect, seconds without a byte.

    A login goes to the host that it is written for, and to none that this one redirects to. Raises StatusError for an
    answer of 400 and above, requests.RequestException where there is none.
    """
    login = mirrors.login(address)
    with (
        http.session(patience) as session,
        _send(
            session,
            method,
            address,
            headers={"Accept-Encoding": "identity", **(headers or {})},
            auth=(login.username, login.password) if login else None,
            # Here and not on the session, where the environment's bundle would win over the one in mirrors.yaml.
            verify=str(mirrors.ca_bundle),
            timeout=timeout,
            allow_redirects=True,
            stream=True,
        ) as answer,
    ):
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            raise StatusError(answer.status_code)
        yield answer


def _send(session: requests.Session, method: str, address: str, **options: Any) -> requests.Response:
    """Return what requests answers.

    What it lets through of urllib3's errors, a host's name that cannot be, as its own.
    """
    try:
        return session.request(method, address, **options)
    except LocationParseError as error:
        raise requests.exceptions.InvalidURL(str(error)) from None


def reason(error: Exception, mirrors: Mirrors) -> str:
    """Return why there was no answer, as the end of a sentence."""
    why = http.why(error)
    if why == http.UNTRUSTED:
        return f"its certificate is not trusted by {mirrors.ca_bundle}: name another ca-bundle in mirrors.yaml"
    return why
