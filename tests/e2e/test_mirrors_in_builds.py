"""A build behind mirrors with logins: it uses them, and the image has no trace of them."""

import base64
import hashlib
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from rdma_images import engine, facts
from rdma_images.build import build_secrets
from rdma_images.build.run_bake import BUILDX
from rdma_images.core.source import Supply
from rdma_images.engine.debian import bootstrap
from rdma_images.inputs import availability, lock, mirrors, sources
from rdma_images.render import bake, dockerfiles
from tests.support import loopback
from tests.support.images import planned_image

pytestmark = [pytest.mark.e2e, pytest.mark.part("small-images")]

PASSWORD = "kept-between-us-7531"
STAGES = ("with-python", "uv")  # one takes packages of Debian, the other a wheel
HEADERS = ("Content-Type", "Content-Range", "ETag", "Last-Modified")


class _Forward(BaseHTTPRequestHandler):
    """Hands a request on to the real address, for who has the login."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        _, name, path = self.path.split("/", 2)
        login = base64.b64decode(self.headers.get("Authorization", " ").partition(" ")[2]).decode()
        assert isinstance(self.server, _Mirror)
        self.server.requests.append((name, login))
        if login != f"me:{PASSWORD}":
            self._send(401, b"", {"WWW-Authenticate": "Basic"})
            return
        passed = {n: v for n, v in self.headers.items() if n in ("Range", "If-Range", "If-Modified-Since", "Accept")}
        answer = requests.request(self.command, f"{self.server.upstream[name]}/{path}", headers=passed, timeout=60)
        self._send(answer.status_code, answer.content, {n: answer.headers[n] for n in HEADERS if n in answer.headers})

    do_HEAD = do_GET

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET" and status != 304:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Mirror(ThreadingHTTPServer):
    """What it forwards to, and who asked for what with which login."""

    def __init__(self, upstream: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.upstream = upstream
        self.requests: list[tuple[str, str]] = []


@contextmanager
def mirror(upstream: dict[str, str]) -> Iterator[_Mirror]:
    """Run a mirror with a login of the addresses given, each under its name."""
    server = _Mirror(upstream)
    with loopback.running(server):
        yield server


@pytest.fixture(scope="module")
def container_engine() -> engine.Engine:
    running = engine.ensure()
    if running.build_network != "host":
        pytest.skip("a RUN of this engine cannot reach a mirror on this host's loopback interface")
    return running


def test_mirrors_and_logins_reach_the_build_and_stay_out_of_what_it_makes(
    container_engine: engine.Engine, tmp_path: Path
) -> None:
    image = planned_image()
    upstreams = {
        source.component: source.upstream
        for source in sources.sources(image, facts.load())
        if source.kind in ("apt", "index")
    }
    with mirror(upstreams) as server:
        host = f"127.0.0.1:{server.server_port}"
        lines = [f"  {name}: http://{host}/{name}" for name in upstreams]
        credentials = f"credentials: {{'{host}': {{username: me, password: 'env:PASSWORD'}}}}"
        (tmp_path / "mirrors.yaml").write_text("\n".join(["sources:", *lines, credentials, ""]))
        replaced = mirrors.load(tmp_path / "mirrors.yaml", {"PASSWORD": PASSWORD})
        supplies = availability.find_supplies(sources.sources(image, facts.load()), replaced)
        assert all(supply.reachable for supply in supplies if supply.source.kind in ("apt", "index"))
        server.requests.clear()
        build(container_engine, STAGES, supplies, replaced, tmp_path)
        with_login = {name for name, login in server.requests if login == f"me:{PASSWORD}"}
        port = str(server.server_port)
    assert with_login == {"debian", "debian-security", "package-index"}
    for stage in STAGES:
        content = everything(tmp_path / f"{stage}.tar")
        assert b"Debian" in content  # that it is looked into at all
        assert PASSWORD.encode() not in content
        assert f"127.0.0.1:{port}".encode() not in content


def build(
    container_engine: engine.Engine,
    stages: Sequence[str],
    supplies: Sequence[Supply],
    replaced: mirrors.Mirrors,
    folder: Path,
) -> None:
    """Build stages of the image's own Dockerfile, without the cache, each into an OCI archive."""
    image = replace(planned_image(), python_packages=("numpy",))
    wheels, toolkit = lock.read_image_lock(image), lock.read_lock(lock.toolkit_request(image))
    (folder / "Dockerfile").write_text(dockerfiles.render(image, wheels, toolkit, lock.tools()))
    tar = bootstrap.base_tar("debian13")
    # What makes this run unlike every other: no step of it can come from the cache.
    salt = hashlib.sha256(os.urandom(8)).hexdigest()
    inline = f"FROM scratch\nADD {tar.name} /\nENV SALT={salt}\n"
    base = {"context": str(tar.parent), "dockerfile-inline": inline, "output": ["type=cacheonly"]}
    files = build_secrets.write_secrets(folder / "secrets", supplies, replaced)
    targets = {
        stage: {
            "context": str(folder),
            "target": stage,
            "contexts": {"base": "target:base", "builder": "target:builder"},
            "secret": [f"type=file,id={name},src={path}" for name, path in files.items()],
            "output": [f"type=oci,dest={folder / stage}.tar,compression=uncompressed,force-compression=true"],
        }
        for stage in stages
    }
    definition = {"target": {**targets, "base": base, "builder": base}}
    (folder / "bake.json").write_text(json.dumps(definition))
    (folder / "network.yaml").write_text(json.dumps(bake.network_file(definition)))
    command = ["docker", "buildx", "bake", "--provenance=false", "--progress=plain"]
    command += ["--file", str(folder / "network.yaml"), "--file", str(folder / "bake.json"), *stages]
    environ = container_engine.environ() | BUILDX
    done = subprocess.run(command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert PASSWORD not in done.stderr


def everything(archive: Path) -> bytes:
    """Return every byte of an OCI archive: manifest, history, and each file of its layers, which are not compressed."""
    with tarfile.open(archive) as outer:
        assert not any(blob.read(2) == b"\x1f\x8b" for member in outer if (blob := outer.extractfile(member)))
    return archive.read_bytes()
