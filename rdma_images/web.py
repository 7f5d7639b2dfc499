"""One request over HTTP(S) with our trust and logins, and why it failed in words; file addresses beside it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests

from rdma_images.mirrors import Mirrors

# Parts of what the system, the resolver and urllib3 say, and what a user wants to hear of it.
WORDS = {
    "NameResolutionError": "nobody knows that host",
    "Connection refused": "connection refused",
    "No route to host": "no route to host",
    "Network is unreachable": "no route to host",
    "IncompleteRead": "the connection broke off",
    "Connection reset": "the connection was reset",
    "Remote end closed": "the server closed the connection without an answer",
}


class StatusError(Exception):
    """The server answered, and not with what was asked for."""

    def __init__(self, status: int) -> None:
        known = {s.value: s.phrase for s in HTTPStatus}
        super().__init__(f"answered {status} {known.get(status, '')}".rstrip())
        self.status = status


def local(address: str) -> Path | None:
    """The path of a file address, or of a bare path; None for what is on the network."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return Path(address).expanduser() if not parts.scheme else None


@contextmanager
def request(
    method: str,
    address: str,
    mirrors: Mirrors,
    timeout: tuple[float, float],
    headers: Mapping[str, str] | None = None,
) -> Iterator[requests.Response]:
    """An answer whose body is still to be read. `timeout`: seconds to connect, seconds without a byte.

    A login goes to the host that it is written for, and to none that this one redirects to. Raises StatusError for an
    answer of 400 and above, requests.RequestException where there is none.
    """
    login = mirrors.login(address)
    with (
        requests.Session() as session,
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
        ) as answer,
    ):
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            raise StatusError(answer.status_code)
        yield answer


def reason(error: Exception, mirrors: Mirrors) -> str:
    """Why there was no answer, as the end of a sentence."""
    if isinstance(error, requests.exceptions.SSLError):
        return f"its certificate is not trusted by {mirrors.ca_bundle}: name another ca-bundle in mirrors.yaml"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error) or type(error).__name__
    return next((words for part, words in WORDS.items() if part in text), text)
