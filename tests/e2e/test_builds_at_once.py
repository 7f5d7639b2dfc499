"""Two builds at once, of which one compiles; and a build killed while it compiles."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.engine import private
from tests.support import checkout

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(private.obstacle() is not None, reason=str(private.obstacle()))]

PATIENCE = 1200  # seconds: another worker's builds come between
TARGET = """
  {name}:
    summary: PyTorch with code of a user
    fabric: efa
    template: efa-pytorch
    python-packages: [{packages}]
    files: [train.py]
    default:
      base: debian13
      pytorch: 2.15.0
      efa-installer: 1.50.0
"""
FILES = {
    "train.py": "print('training')\n",
    "counting/pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
    '[project]\nname = "counting"\nversion = "0.1"\n',
    "counting/counting.c": textwrap.dedent("""
        #include <Python.h>
        static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "counting", NULL, -1, NULL};
        PyMODINIT_FUNC PyInit_counting(void) { return PyModule_Create(&module); }
    """),
}
SETUP = """
import urllib.request
from setuptools import Extension, setup

urllib.request.urlopen("{address}").read()
setup(ext_modules=[Extension("counting", ["counting.c"])])
"""


class Gate:
    """A server that answers what compiles once it may go on."""

    def __init__(self) -> None:
        self.is_asked, self.is_open = threading.Event(), threading.Event()
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gate.is_asked.set()
                gate.is_open.wait()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def gate() -> Iterator[Gate]:
    opened = Gate()
    threading.Thread(target=opened.server.serve_forever, daemon=True).start()
    yield opened
    opened.is_open.set()
    opened.server.shutdown()
    opened.server.server_close()


@pytest.fixture
def project(tmp_path: Path, gate: Gate) -> Iterator[Path]:
    folder = checkout.copied(tmp_path / "project")
    with (folder / "matrix.yaml").open("a") as matrix:
        matrix.write(TARGET.format(name="at-once-compiled", packages="./counting"))
        matrix.write(TARGET.format(name="at-once-plain", packages="einops"))
    for name, text in {**FILES, "counting/setup.py": SETUP.format(address=gate.address)}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    yield folder
    environ = engines.ensure().environ()
    listing = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "rdma-images/at-once*"]
    names = subprocess.run(listing, env=environ, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "image", "rm", *names], env=environ, capture_output=True, check=True)


def started(project: Path, target: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "invoke", "build", "--target", target, "--rehearse", "--no-validate"]
    environ = {**os.environ, "PYTHONPATH": str(project)}
    log_file = (project / f"{target}.log").open("w")
    with log_file:
        return subprocess.Popen(
            command,
            cwd=project,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            process_group=0,
        )


def log(project: Path, target: str) -> str:
    return (project / f"{target}.log").read_text()


def test_a_build_does_not_wait_for_one_that_compiles_and_a_killed_one_leaves_nothing_locked(
    project: Path, gate: Gate
) -> None:
    compiling = started(project, "at-once-compiled")
    try:
        assert gate.is_asked.wait(PATIENCE), log(project, "at-once-compiled")
        assert started(project, "at-once-plain").wait(PATIENCE) == 0, log(project, "at-once-plain")
        waited = [line for line in log(project, "at-once-plain").splitlines() if "waiting for" in line]
        assert not [line for line in waited if f"process {compiling.pid} " in line]  # but for another worker's build
        assert compiling.poll() is None
    finally:
        os.killpg(compiling.pid, signal.SIGKILL)
        compiling.wait()
    gate.is_open.set()
    assert started(project, "at-once-compiled").wait(PATIENCE) == 0, log(project, "at-once-compiled")
    command = [sys.executable, "-m", "invoke", "run", "--target", "at-once-compiled", "--", "python", "-c"]
    environ = {**os.environ, "PYTHONPATH": str(project)}
    done = subprocess.run([*command, "import counting"], cwd=project, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
