"""The HTTP session: what it repeats, how long it waits, and what it never repeats."""

import socket
import ssl
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests
import trustme

from rdma_images.core import http
from tests.support.loopback import Answer, Site, serve


class Waits(list[float]):
    """The pauses that a session makes, which take no time here, and what it says of them."""

    def __init__(self, retry_policy: http.RetryPolicy | None = None) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.retry_policy = replace(retry_policy or http.RetryPolicy(), wait=self.append, progress=self.messages.append)

    def request(self, method: str, address: str, timeout: float = 5.0, data: bytes | None = None) -> requests.Response:
        with http.session(self.retry_policy) as session:
            return session.request(method, address, timeout=timeout, data=data)


def test_a_busy_server_is_asked_again_after_longer_and_longer(site: Site) -> None:
    site.answers["/x"] = [Answer(status=503), Answer(status=429), Answer(b"content")]
    waits = Waits()
    assert waits.request("GET", f"{site.address}/x").content == b"content"
    assert 0.5 <= waits[0] <= 0.625
    assert 1 <= waits[1] <= 1.25
    assert waits.messages[0].startswith("answered 503 Service Unavailable: again in ")


@pytest.mark.parametrize(
    ("retry_after", "shortest", "longest"),
    [("3", 3.0, 3.0), ("99999999", 4.0, 4.0), ("soon", 0.5, 0.625), ("-5", 0.5, 0.625), ("", 0.5, 0.625)],
)
def test_a_server_says_how_long_to_wait_within_limits(
    site: Site, retry_after: str, shortest: float, longest: float
) -> None:
    site.answers["/x"] = [Answer(status=503, headers={"Retry-After": retry_after}), Answer(b"content")]
    waits = Waits(http.RetryPolicy(longest_wait=4.0))
    assert waits.request("GET", f"{site.address}/x").ok
    assert shortest <= waits[0] <= longest


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_what_changes_something_is_sent_once(site: Site, method: str) -> None:
    site.answers["/x"] = Answer(status=503)
    waits = Waits(http.RetryPolicy(retry_absent=True))
    assert waits.request(method, f"{site.address}/x", data=b"body").status_code in (501, 503)
    with pytest.raises(requests.ConnectionError):
        waits.request(method, closed(), data=b"body")
    assert waits == []


@pytest.mark.parametrize(("status", "tries"), [(503, 3), (400, 1), (401, 1), (404, 1), (500, 1), (501, 1)])
def test_a_busy_server_is_asked_three_times_and_any_other_once(site: Site, status: int, tries: int) -> None:
    site.answers["/x"] = Answer(status=status)
    waits = Waits()
    assert waits.request("HEAD", f"{site.address}/x").status_code == status
    assert (len(waits), len(site.requests)) == (tries - 1, tries)


def test_an_unknown_host_is_asked_for_once() -> None:
    waits = Waits(http.RetryPolicy(retry_absent=True))
    with pytest.raises(requests.ConnectionError) as caught:
        waits.request("GET", "http://nobody.invalid/x")
    assert http.describe_error(caught.value) == "unknown host"
    assert waits == []


@pytest.mark.parametrize("location", ["/\x80", "http://[", "http://x:port/"])
def test_an_impossible_redirect_is_an_error_of_requests(site: Site, location: str) -> None:
    site.answers["/x"] = Answer(status=307, headers={"Location": location})
    with http.session() as session, pytest.raises(requests.RequestException):
        session.get(f"{site.address}/x", timeout=5)


def test_a_certificate_that_is_not_trusted_is_seen_once() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    waits = Waits(http.RetryPolicy(retry_absent=True))
    with serve(context) as site, pytest.raises(requests.exceptions.SSLError):
        waits.request("GET", f"{site.address}/x")
    assert waits == []


AUTHORITY = trustme.CA()


@pytest.mark.parametrize(
    ("scheme", "name", "days", "trusted", "expected"),
    [
        ("https", "localhost", 1, False, "its certificate is not trusted"),
        ("https", "other.example", 1, True, "its certificate is for another name"),
        ("https", "localhost", -1, True, "its certificate has expired"),
        ("http", "localhost", 1, True, "it speaks plain HTTP, and no TLS"),
    ],
)
def test_a_connection_that_is_not_secure_says_why(
    tmp_path: Path, scheme: str, name: str, days: int, trusted: bool, expected: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    expiry = datetime.now(UTC) + timedelta(days=days)
    (AUTHORITY if trusted else trustme.CA()).issue_cert(name, not_after=expiry).configure_cert(context)
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with serve(context if scheme == "https" else None) as site, http.session() as session:
        address = site.address.replace("http://127.0.0.1", "https://localhost")
        with pytest.raises(requests.exceptions.SSLError) as caught:
            session.get(address, verify=str(tmp_path / "ca.pem"), timeout=5)
    assert http.describe_error(caught.value) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [("407 Proxy Authentication Required", "the proxy asks for a login"), ("403 Forbidden", "the proxy refuses it")],
)
def test_a_proxy_that_refuses_is_distinguished_from_the_server(status: str, expected: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(4096)
                accepted.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

        proxy = threading.Thread(target=refuse)
        proxy.start()
        waits = Waits()
        with http.session(waits.retry_policy) as session, pytest.raises(requests.ConnectionError) as caught:
            session.get(
                "https://h.example/x", proxies={"https": f"http://127.0.0.1:{listener.getsockname()[1]}"}, timeout=5
            )
        proxy.join()
    assert (http.describe_error(caught.value), waits) == (expected, [])


@pytest.mark.parametrize(("absent", "times"), [(False, 0), (True, 2)])
def test_who_does_not_answer_is_asked_again_only_where_that_is_wanted(site: Site, absent: bool, times: int) -> None:
    site.answers["/x"] = Answer(silent_for=5)
    waits = Waits(http.RetryPolicy(retry_absent=absent))
    with pytest.raises(requests.RequestException) as refused:
        waits.request("GET", closed())
    assert (http.describe_error(refused.value), len(waits)) == ("connection refused", times)
    with pytest.raises(requests.RequestException) as stalled:
        waits.request("GET", f"{site.address}/x", timeout=0.05)
    assert (http.describe_error(stalled.value), len(waits)) == ("no answer in time", 2 * times)


def test_a_connection_that_the_server_drops_is_opened_again(site: Site) -> None:
    site.answers["/x"] = [Answer(drop=True), Answer(b"content")]
    waits = Waits()
    assert waits.request("GET", f"{site.address}/x").content == b"content"
    assert waits.messages[0].startswith("the server closed the connection without an answer: again in ")


def closed() -> str:
    """Return an address of this machine where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/x"
