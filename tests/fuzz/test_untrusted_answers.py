"""Damaged answers of registries, over real connections, and damaged wheels."""

import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from rdma_images.core import http
from rdma_images.core.errors import RdmaImagesError
from rdma_images.layers import wheel_members
from rdma_images.registry.client import OCI_INDEX, OCI_MANIFEST, Manifest, Repository, canonical
from rdma_images.registry.connection import Connection
from rdma_images.registry.credentials import Login
from tests.support import layer_wheels
from tests.support.odd_input import edited_bytes, generated

COUNTS = [15, pytest.param(5_000, marks=pytest.mark.exhaustive)]  # cases of each kind
DIGEST = f"sha256:{'a' * 64}"
HOST = b"HOST:PORT"  # in an answer: the server's own address
STATUSES = (b"200 OK", b"201 Created", b"202 Accepted", b"206 Partial Content", b"307 Moved", b"401 No", b"404 Not")
REGISTRY = b"""\
HTTP/1.1 STATUS\r
Content-Type: application/vnd.oci.image.index.v1+json\r
Docker-Content-Digest: sha256:aaaaaaaa\r
WWW-Authenticate: Bearer realm="http://HOST:PORT/token",service="registry"\r
Location: /v2/a/blobs/uploads/1\r
Content-Range: bytes 0-3/4\r
Connection: close\r
\r
{"token": "secret", "errors": [{"code": "DENIED", "message": "not allowed"}], "config": {"mediaType": "x", "size": 3,
"digest": "sha256:aaaaaaaa"}, "manifests": [{"mediaType": "x", "digest": "sha256:aaaaaaaa", "size": 3}]}
"""


class _Server:
    """Sends the same bytes to whoever asks, and closes the connection."""

    def __init__(self) -> None:
        self.answer = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    connection.recv(1 << 16)
                    connection.sendall(self.answer.replace(HOST, self.host.encode()))

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def serving() -> Iterator[_Server]:
    server = _Server()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield server
    server.close()
    thread.join()


def answers(text: bytes) -> st.SearchStrategy[bytes]:
    """Return damaged answers of every status."""
    texts = edited_bytes(text)
    return st.builds(lambda status, answer: answer.replace(b"STATUS", status), st.sampled_from(STATUSES), texts)


def read_registry(server: _Server, folder: Path) -> None:
    login = Login("name", "word")
    repository = Repository(
        Connection(server.host, lambda: login, timeout=(5, 5), retry_policy=http.RetryPolicy(0)), "a"
    )
    image = Manifest(OCI_MANIFEST, canonical({"config": {"mediaType": "x", "digest": DIGEST, "size": 3}}))
    questions: list[Callable[[], object]] = [
        lambda: repository.find_digest("latest"),
        lambda: repository.manifest("latest").members(),
        lambda: repository.config(image),
        lambda: repository.referrers(DIGEST),
        lambda: repository.has_blob(DIGEST, 3),
        lambda: repository.save_blob(DIGEST, folder / "blob"),
        lambda: repository.put_blob(b"abc"),
        lambda: repository.put_manifest("latest", Manifest(OCI_INDEX, b"{}")),
        lambda: repository.mount(DIGEST, repository),
    ]
    for question in questions:
        with suppress(RdmaImagesError):
            question()


def read_wheel(content: Any, folder: Path) -> None:
    file = folder / "thing-1.0-py3-none-any.whl"
    file.write_bytes(content)
    entries = wheel_members.layer_members(file, len(content), lambda _: False)
    with zipfile.ZipFile(file) as archive:
        for entry in entries.runtime:
            for _ in wheel_members.chunks(entry, archive, 1 << 16):
                pass


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr(http._Retries, "sleep", lambda *_: None)


@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_answer_of_a_registry_is_read_or_refused(count: int, tmp_path: Path) -> None:
    with serving() as server:

        def run(answer: Any) -> None:
            server.answer = answer
            read_registry(server, tmp_path)

        generated(answers(REGISTRY), run, count)


@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_wheel_is_read_or_refused(count: int, tmp_path: Path) -> None:
    content = layer_wheels.make(tmp_path / "original", files={"thing/x.py": b"x" * 99}).read_bytes()
    generated(edited_bytes(content), lambda damaged: read_wheel(damaged, tmp_path), count)
