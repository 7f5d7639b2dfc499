"""A snapshot of Debian's archive in a folder, served on the loopback interface."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests

from rdma_images.core import atomic
from rdma_images.engine.debian import host_apt
from tests.support import loopback


class _Handler(BaseHTTPRequestHandler):
    """/<archive>/<moment>/<path> is <folder>/<archive>/<path>, whatever the moment."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, SnapshotServer)
        body = self.server.content(self.path.lstrip("/"))
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body or b"")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


class SnapshotServer(ThreadingHTTPServer):
    """A snapshot in a folder; while `fills`, the host's archive completes it.

    `moments` are those that were asked for.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.fills = True
        self.moments: set[str] = set()
        debian = host_apt.host_archives()
        assert debian.security
        self._upstream = {"debian": debian.main.uri, "debian-security": debian.security.uri}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a file; None where there is none."""
        archive, moment, name = path.split("/", 2)
        self.moments.add(moment)
        file = self.folder / archive / name
        if not file.is_file() and self.fills:
            response = requests.get(f"{self._upstream[archive].rstrip('/')}/{name}", timeout=120)
            if response.status_code == 200:
                with atomic.replacing(file) as beside:
                    beside.write_bytes(response.content)
        return file.read_bytes() if file.is_file() else None


@contextmanager
def served(folder: Path) -> Iterator[SnapshotServer]:
    """Serve a snapshot that is filled from the archive as it is asked for."""
    server = SnapshotServer(folder)
    with loopback.running(server):
        yield server
