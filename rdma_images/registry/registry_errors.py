"""Errors of registries, each as a sentence, and retries of those that may heal."""

import re
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import requests

from rdma_images.core import http
from rdma_images.core.errors import RdmaImagesError, first_line
from rdma_images.core.plain import decode_json

# Upload addresses carry the state of the upload, docker repeats them in its errors, and some registries sign them.
_QUERY = re.compile(r"(https?://[^\s\"?]+)\?[^\s\"]+")
_LOGIN = re.compile(r"://[^\s/@:]+:[^\s/@]+@")
# The next word is a token unless it has small letters alone, as in "Basic authentication is required".
_AUTHORIZATION = re.compile(r"\b((?i:basic|bearer)) +(?=[a-z]*[A-Z0-9+/=._~-])[A-Za-z0-9+/=._~-]{8,}")


class RegistryError(RdmaImagesError):
    """A registry did not do what it was asked."""

    temporary = False  # whether the same request may succeed a little later


class UnreachableError(RegistryError):
    """No answer: the name, the network, the TLS certificate, or a registry that is down."""

    temporary = True


class UnknownHostError(UnreachableError):
    """The name has no address: it is mistyped far more often than a name server forgets one."""

    temporary = False


class BusyError(RegistryError):
    """The registry answered that it cannot now (429, 5xx), or stopped in the middle."""

    temporary = True


class UnauthorizedError(RegistryError):
    """The registry does not take the credentials, or wants some."""


class ExpiredError(UnauthorizedError):
    """Credentials that were taken before are not taken any more: fresh ones may be."""

    temporary = True


class DeniedError(RegistryError):
    """The credentials are good and do not allow it."""


class MissingError(RegistryError):
    """The repository, or the requested manifest or blob, does not exist."""


class MalformedError(RegistryError):
    """The content does not have the form that it should."""


class ConflictError(RegistryError):
    """Something else is there already: an immutable tag, another digest."""


def mask_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without secrets, authorization headers, logins and upload states."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return _AUTHORIZATION.sub(r"\1 ***", _LOGIN.sub("://***@", _QUERY.sub(r"\1?…", text)))


def has_words(text: str, words: str) -> bool:
    """Return whether `text` has the words, and not as a part of a longer name."""
    boundary = r"(?![\w-])" if words[-1].isalnum() else ""
    return re.search(rf"(?<![\w./-]){re.escape(words)}{boundary}", text) is not None


def transport_error(host: str, error: requests.RequestException) -> RegistryError:
    """Return the error of a request that got no response."""
    match error:
        case _ if http.describe_error(error) == http.UNTRUSTED:
            reason = "its certificate is not trusted here\nname the CA bundle in REQUESTS_CA_BUNDLE"
        case requests.exceptions.ConnectTimeout():
            reason = "no answer to the connection\ncheck the host, the proxy and the firewall"
        case requests.exceptions.Timeout():
            return BusyError(
                f"{host} stopped answering in the middle of a request\ntry again, and see what the host does"
            )
        case _ if any(words in str(error) for words in http.UNKNOWN_HOST):
            return UnknownHostError(f"{host} is an unknown host\ncheck how the host is written")
        case _ if "refused" in str(error).lower():
            reason = "the connection is refused\nstart the registry, or correct its port"
        case _:
            reason = f"{mask_secrets(http.describe_error(error))}\ncheck the host, the proxy and the network"
    return UnreachableError(f"{host} is unreachable: {reason}")


def status_error(host: str, subject: str, status: int, body: str) -> RegistryError:
    """Return the error of an unexpected response about `subject`."""
    detail = mask_secrets(_first_message(body))
    suffix = f" ({detail})" if detail else ""
    match status:
        case 401:
            return UnauthorizedError(
                f"{host} does not take the credentials for {subject}{suffix}\ncheck them, or log in"
            )
        case 403:
            return DeniedError(f"{host} denies access to {subject}{suffix}\nask for the right to push there")
        case 404:
            return MissingError(f"{host} has no {subject}{suffix}\ncheck how it is written, and that it was published")
        case 500:
            return BusyError(f"{host} fails at {subject}: HTTP 500{suffix}\nlook into the registry's log")
        case 429 | 502 | 503 | 504:
            return BusyError(f"{host} cannot do it now for {subject}: HTTP {status}{suffix}\ntry again later")
        case _ if has_words(body.lower(), "immutable"):
            return ConflictError(
                f"{host} refuses to change {subject}: the tag is immutable{suffix}\n"
                "set immutable in registries.yaml, so that each build gets a tag of its own"
            )
        case _:
            return RegistryError(f"{host} refuses {subject}: HTTP {status}{suffix}\nlook into the registry's log")


def _first_message(body: str) -> str:
    """Return the first error message of a response; else the start of its body."""
    try:
        errors = decode_json(body)["errors"]
        return str(errors[0].get("message") or errors[0].get("code") or "")[:300]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return " ".join(body.split())[:200]


Result = TypeVar("Result")
LONGEST_WAIT = 30.0  # seconds


def retry(
    action: Callable[[], Result],
    attempts: int = 6,
    first_wait: float = 1.0,
    progress: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], object] = time.sleep,
) -> Result:
    """Return the result of `action`, called again after temporary errors.

    Waits `first_wait` seconds, then twice that and so on. The last fault is raised as it is.
    """
    for attempt in range(1, attempts + 1):
        try:
            return action()
        except RegistryError as error:
            if not error.temporary or attempt == attempts:
                raise
            wait = http.backoff(attempt, first_wait, LONGEST_WAIT)
            progress(f"{first_line(error)}; trying again in {wait:.0f} s ({attempt} of {attempts - 1})")
            sleep(wait)
    raise AssertionError("attempts must be at least 1")
