"""A report that was kept: found by what the engine's socket says of the image, without what only measuring needs."""

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.engine import Engine, docker_command
from rdma_images.engine.docker_command import image_digests
from rdma_images.inspection.report import Report
from rdma_images.report.report_files import REPORT, report_folder
from rdma_images.validate import suite
from rdma_images.validate.validate_image import kept_report, validate

REF, DIGEST = "lab/train:1", f"sha256:{1:064x}"


class Daemon(BaseHTTPRequestHandler):
    """A daemon that has one image."""

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        exists = self.path == f"/images/{REF}/json"
        self.send_response(200 if exists else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"Id": DIGEST} if exists else {"message": "no such image"}).encode())


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Yield an engine whose socket answers."""
    socket_path = tmp_path / "docker.sock"
    with socketserver.UnixStreamServer(str(socket_path), Daemon) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Engine("lab", "existing", f"unix://{socket_path}", "28", "0.13", "containerd", "default")
        server.shutdown()
        thread.join()


def test_an_engines_socket_says_what_an_image_is(engine: Engine) -> None:
    assert docker_command.image_id(engine, REF) == DIGEST
    assert docker_command.image_id(engine, "lab/other:1") == ""
    assert docker_command.image_id(replace(engine, host="unix:///no/such/socket"), REF) == ""
    assert docker_command.image_id(replace(engine, host="tcp://127.0.0.1:1"), REF) == ""


def test_docker_is_asked_where_the_socket_does_not_know_every_image(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspected: list[tuple[str, ...]] = []

    def inspect(_: Engine, *arguments: str) -> subprocess.CompletedProcess[str]:
        inspected.append(arguments[4:])
        return subprocess.CompletedProcess((), 1, f"{DIGEST} {REF}\n", "no such image")

    monkeypatch.setattr(docker_command, "run", inspect)
    assert image_digests([], engine) == {}
    assert image_digests([REF], engine) == {REF: DIGEST}
    assert not inspected
    assert image_digests([REF, "lab/other:1"], engine) == {REF: DIGEST}
    assert inspected == [(REF, "lab/other:1")]


def test_a_cached_report_answers(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    report = Report(REF, DIGEST, suite.digest(), None, (), "2026-11-22T10:00:00+00:00", 3.0, (), None)
    REPORT.write_file(kept_report(REF, DIGEST, None, ("static",)), report)
    lines: list[str] = []
    assert validate(REF, engine, progress=lines.append) == replace(report, reused=True)
    assert lines == [f"{REF} is up to date: this suite has validated it"]
    assert (report_folder(REF) / "report.html").exists()


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("rdma_images.validate.suite", "docker jinja2 pytest rich testinfra rdma_images.report rdma_images.datapath"),
        ("rdma_images.validate.candidates", "docker jinja2 testinfra rdma_images.datapath"),
    ],
)
def test_nothing_needless_is_imported(module: str, needless: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({needless.split()!r}) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
