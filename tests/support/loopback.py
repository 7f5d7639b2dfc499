"""A web server on the loopback interface that answers as a test says, and keeps requests."""

import base64
import random
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def free_port() -> int:
    """Return a port that the kernel gives to no connection while its server is down."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(lowest // 2, lowest)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


@dataclass(frozen=True)
class Answer:
    """What to say to one request."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None  # end the connection after so many bytes of the body
    drop: bool = False  # end the connection without a word
    silent_for: float = 0.0  # seconds before a word is said
    together: threading.Barrier | None = None  # say nothing before as many requests have come
    ranges: bool = True


@dataclass(frozen=True)
class ReceivedRequest:
    """What came in."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def login(self) -> str | None:
        """name:password, where one was sent."""
        kind, _, value = self.headers.get("authorization", "").partition(" ")
        return base64.b64decode(value).decode() if kind.lower() == "basic" else None


class Site:
    """Answers by path; a list is used up, its last entry stays."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers: dict[str, Answer | list[Answer]] = {}
        self.requests: list[ReceivedRequest] = []
        self.over = threading.Event()

    def next(self, path: str) -> Answer:
        answer = self.answers.get(path, Answer(status=404))
        if isinstance(answer, list):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        return answer


@contextmanager
def serve(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    """Run a site for as long as the block runs."""
    server = _Server(("127.0.0.1", 0), _Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
    server.site = Site(f"{scheme}://{host}:{server.server_port}")
    with running(server):
        try:
            yield server.site
        finally:
            server.site.over.set()


@contextmanager
def running(server: socketserver.BaseServer) -> Iterator[None]:
    """Answer requests to `server` for as long as the block runs, and close it."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    site: Site
    daemon_threads = True
    request_queue_size = 64  # tests ask many things at once


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        site = self.server.site
        site.requests.append(ReceivedRequest(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        answer = site.next(self.path)
        site.over.wait(answer.silent_for)
        if answer.together:
            answer.together.wait(60)
        if answer.drop:
            self.close_connection = True
            return
        status, body, headers = answer.status, answer.body, dict(answer.headers)
        byte_range = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if byte_range and status == 200 and answer.ranges:
            start, end = int(byte_range[1]), int(byte_range[2] or len(body) - 1)
            status, headers["Content-Range"] = 206, f"bytes {start}-{end}/{len(body)}"
            if start >= len(body):
                status, headers["Content-Range"] = 416, f"bytes */{len(body)}"
            body = body[start : end + 1]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body if answer.cut is None else body[: answer.cut])
            self.close_connection = answer.cut is not None

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass
