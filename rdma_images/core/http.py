"""HTTP sessions: which requests are repeated, after how long, and errors in words."""

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse
from urllib3.connectionpool import ConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    InvalidHeader,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
)
from urllib3.util.retry import Retry

from rdma_images.core.progress import Progress, silent

BUSY = frozenset({429, 502, 503, 504})
FAILING = BUSY | {408, 425, 500}  # for reads only: some registries answer 500 to one question for good
REPEATABLE = ("GET", "HEAD")  # they change nothing on the server, and have no body that a first try uses up
# What glibc (twice) and macOS say of a name without an address; a failed lookup has other words.
UNKNOWN_HOST = ("Name or service not known", "No address associated with hostname", "nodename nor servname")

UNTRUSTED = "its certificate is not trusted"
# Parts of what the system, OpenSSL and urllib3 say, and what a user wants to hear of it; the first that fits counts.
ERROR_PHRASES = {
    "407 Proxy Authentication": "the proxy asks for a login",
    "Tunnel connection failed": "the proxy refuses it",
    "certificate has expired": "its certificate has expired",
    **dict.fromkeys(("Hostname mismatch", "IP address mismatch"), "its certificate is for another name"),
    "CERTIFICATE_VERIFY_FAILED": UNTRUSTED,
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"), "it speaks plain HTTP, and no TLS"),
    **dict.fromkeys(UNKNOWN_HOST, "unknown host"),
    "NameResolutionError": "its name cannot be looked up now",
    "Connection refused": "connection refused",
    "No route to host": "no route to host",
    "Network is unreachable": "no route to host",
    "IncompleteRead": "the connection broke off",
    "Connection reset": "the connection was reset",
    "Remote end closed": "the server closed the connection without an answer",
    "timed out": "no answer in time",
}


@dataclass(frozen=True)
class RetryPolicy:
    """The requests to repeat, and the pauses before that.

    With `retry_absent` also where nobody answers (refused, no route, no answer in time), else only where a server is
    busy or drops a connection. Permanent failures are never repeated: an unknown host, a certificate that is not
    trusted. `wait` takes seconds, and may raise to give up.
    """

    retries: int = 2  # after the first try
    statuses: frozenset[int] = BUSY
    retry_absent: bool = False
    first_wait: float = 0.5  # seconds, doubled before each next try
    longest_wait: float = 30.0  # seconds; also of what a server asks for in Retry-After
    progress: Progress = field(default=silent, compare=False)
    wait: Callable[[float], object] = field(default=time.sleep, compare=False)


def session(retry_policy: RetryPolicy | None = None) -> requests.Session:
    """Return a session that repeats GET and HEAD as `retry_policy` says, and nothing else."""
    retry_policy = retry_policy or RetryPolicy()
    retries = _Retries(
        total=retry_policy.retries,
        allowed_methods=REPEATABLE,
        status_forcelist=retry_policy.statuses,
        raise_on_status=False,
    )
    retries.retry_policy = retry_policy
    http_session = _Session()
    for scheme in ("http://", "https://"):
        http_session.mount(scheme, HTTPAdapter(max_retries=retries))
    return http_session


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return the seconds to wait after a try: `first`, doubled each time, up to `longest`.

    Up to a quarter is added at random, so that many runners do not come back together.
    """
    return min(longest, first * 2.0 ** (attempt - 1)) * random.uniform(1, 1.25)


def describe_error(error: Exception) -> str:
    """Return why there was no answer, as the end of a sentence."""
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = f"{error!r} {error}"
    return next((words for part, words in ERROR_PHRASES.items() if part in text), str(error) or type(error).__name__)


def describe_status(code: int) -> str:
    """Return an HTTP status as the end of a sentence: "answered 503 Service Unavailable"."""
    phrases = {http_status.value: http_status.phrase for http_status in HTTPStatus}
    return f"answered {code} {phrases.get(code, '')}".rstrip()


def resumes(response: requests.Response, received: int) -> bool:
    """Return whether the response starts at byte `received`; a server may send all instead."""
    start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return response.status_code == HTTPStatus.PARTIAL_CONTENT and start is not None and int(start[1]) == received


class _Session(requests.Session):
    """A session that raises only requests' own errors, whatever a server answers."""

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        """Send a request. Raises requests.RequestException."""
        try:
            return super().request(*arguments, **options)
        except requests.RequestException:
            raise
        except UnicodeError:
            raise requests.exceptions.InvalidHeader("its answer has a header that is no text") from None
        except ValueError as error:  # of urllib3 and urllib: an impossible address, also of a redirect
            raise requests.exceptions.InvalidURL(str(error)) from None


class _Retries(Retry):
    """urllib3's retries under a RetryPolicy: stop where no retry helps, and report each wait."""

    retry_policy: RetryPolicy

    def new(self, **kw: Any) -> "_Retries":
        """Return this policy with other counts."""
        retries = super().new(**kw)
        retries.retry_policy = self.retry_policy
        return retries

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> "_Retries":
        """Return the remaining retries; raise the error where there are none."""
        last = error is not None and not (self.total and method in REPEATABLE and self._may_heal(error))
        current = self.new(total=0, read=False) if last else self
        retries = super(_Retries, current).increment(method, url, response, error, _pool, _stacktrace)
        assert isinstance(retries, _Retries)
        return retries

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        """Return the seconds of Retry-After, at most `longest_wait`; None without one."""
        try:
            seconds = super().get_retry_after(response)
        except InvalidHeader:
            return None
        return min(seconds, self.retry_policy.longest_wait) if seconds else None

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        """Wait before the next try, as long as the server asks for or the policy says."""
        retry_policy, last = self.retry_policy, self.history[-1]
        delay = self.get_retry_after(response) if response else None
        seconds = delay or backoff(len(self.history), retry_policy.first_wait, retry_policy.longest_wait)
        reason = describe_error(last.error) if last.error else describe_status(last.status or 0)
        retry_policy.progress(f"{reason}: again in {seconds:.1f} s")
        retry_policy.wait(seconds)

    def _may_heal(self, error: Exception) -> bool:
        cause = error.original_error if isinstance(error, ProxyError) else error
        if isinstance(cause, NameResolutionError) and any(words in str(cause) for words in UNKNOWN_HOST):
            return False
        if isinstance(cause, NewConnectionError | ConnectTimeoutError | ReadTimeoutError):
            return self.retry_policy.retry_absent
        return isinstance(cause, ProtocolError)
