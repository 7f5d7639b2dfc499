"""Layers for the private engine, which pulls them from this process as hard links.

containerd takes a file that has the name and size of a blob for that blob: nothing is sent, copied or hashed again,
and the layers are unpacked as any image's. Where a file cannot be linked there, the engine reads it from here.
"""

import os
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND
from rdma_images.engine import Engine, docker_command
from rdma_images.engine.layout import layout
from rdma_images.layers.layer_image import LayerImage
from rdma_images.registry.client import OCI_MANIFEST

HANDSHAKE = b"\x16"  # the first byte of TLS
POLL = 0.01  # seconds after which the registry sees that it is to end


def pull_image(image: LayerImage, ref: str, platform: str, blobs: Mapping[str, Path], engine: Engine) -> None:
    """Pull an image that lacks only `blobs` as `ref`. Raises EngineRefusedError."""
    for digest, file in blobs.items():
        _link(file, blob_file(digest))
    with _registry(image, blobs) as host:
        pulled_ref = f"{host}/{ref}"
        unsigned = {"DOCKER_CONTENT_TRUST": "0"}  # the digests are this process's own
        result = docker_command.run(engine, "pull", "--quiet", "--platform", platform, pulled_ref, variables=unsigned)
    if result.returncode:
        raise refusal_error(engine, result.stderr.strip())
    try:
        docker_command.output(engine, "tag", pulled_ref, ref)
    finally:
        docker_command.remove_images(engine, pulled_ref)


class EngineRefusedError(RdmaImagesError):
    """The engine does not take layers, by a full disk or a missing blob."""


def refusal_error(engine: Engine, reason: str) -> EngineRefusedError:
    """Return the error for an engine that does not take layers, with a fix by its words."""
    if "no space left" in reason:
        fix = f"its disk is full: `{COMMAND} engine.status` says what can be freed; then build again"
    else:
        fix = f"see with `{COMMAND} engine.status` that it answers, and build again"
    return EngineRefusedError(f"the engine {engine.name} does not take the wheels' layers: {reason}\n{fix}")


def blob_file(digest: str) -> Path:
    """Return the file in which the private engine's containerd has a blob."""
    return layout().data_folder / "containerd" / "io.containerd.content.v1.content" / "blobs" / digest.replace(":", "/")


def unlink_blob(file: Path, digest: str) -> None:
    """Remove the engine's link to a damaged file, which containerd would trust."""
    with suppress(OSError):
        if (link := blob_file(digest)).samefile(file):
            link.unlink()


def _link(file: Path, target: Path) -> None:
    """Give a file a second name where possible; not across file systems."""
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, target)


@contextmanager
def _registry(image: LayerImage, blobs: Mapping[str, Path]) -> Iterator[str]:
    """Serve one image on the loopback interface, and yield host and port."""

    class Handler(_Handler):
        manifest = image.manifest.raw
        digest = image.manifest.digest
        contents: ClassVar = {image.descriptor.digest: image.config, **blobs}

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    """A server that reports no broken connection: docker itself says why it could not pull."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Report nothing."""


class _Handler(BaseHTTPRequestHandler):
    """The registry that an engine pulls an image from."""

    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without a request, after which a connection is ended
    manifest: bytes
    digest: str  # of the manifest
    contents: ClassVar[Mapping[str, bytes | Path]]  # by digest

    def handle(self) -> None:
        """Answer a TLS handshake, with which docker begins, as a server that speaks only HTTP."""
        if self.connection.recv(1, socket.MSG_PEEK) == HANDSHAKE:
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        else:
            super().handle()

    def do_GET(self) -> None:
        """Answer with the manifest, a blob, or that this is a registry."""
        kind, name = self.path.split("/")[-2:]
        if kind == "manifests":
            self._respond(self.manifest, {"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": self.digest})
        elif name in self.contents:
            self._respond(self.contents[name], {"Content-Type": "application/octet-stream"})
        else:
            self._respond(b"", {}, HTTPStatus.OK if self.path == "/v2/" else HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def _respond(self, body: bytes | Path, headers: Mapping[str, str], status: HTTPStatus = HTTPStatus.OK) -> None:
        size = len(body) if isinstance(body, bytes) else body.stat().st_size
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(size)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if isinstance(body, bytes):
            self.wfile.write(body)
        else:
            with body.open("rb") as file:
                shutil.copyfileobj(file, self.wfile)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
