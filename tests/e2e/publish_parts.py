"""Debian's docker-registry, small images, and the results of their earlier steps."""

import functools
import io
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import bcrypt
import pytest
import requests

from rdma_images import facts
from rdma_images.core import atomic, paths
from rdma_images.core.image import BuildRecord, Image
from rdma_images.core.progress import Progress
from rdma_images.engine import Engine, private
from rdma_images.engine.debian import debian_packages
from rdma_images.inspection.report import Report, encode_report
from rdma_images.plan import matrix, planner
from rdma_images.publish import cosign
from rdma_images.publish.publication import PublishedCopy
from rdma_images.publish.publish_images import PublishResult
from rdma_images.registry.registries import LoginReferences, Oci
from tests.support.case_parts import report_on
from tests.support.loopback import free_port

SUITE = "sha256:" + "2" * 64
UNFINISHED = shutil.ignore_patterns(".*.new")  # what another worker bootstraps or unpacks meanwhile
LINKED_BYTES = 1_000_000
USER, PASSWORD = "ci", "correct horse battery staple"
PATIENCE = 60.0  # seconds for a registry to answer; 0.1 on an idle machine


def placed(outcome: PublishResult) -> PublishedCopy:
    """Return where the image of an outcome is."""
    assert outcome.copy, outcome.error
    return outcome.copy


class Registry:
    """One docker-registry process on the loopback interface; data survives a kill."""

    def __init__(self, program: Path, folder: Path, password: bool = True, storage: Path | None = None) -> None:
        self.program, self.folder = program, folder
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.storage = storage or folder / "data"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": False}},
            "storage": {"filesystem": {"rootdirectory": str(self.storage)}, "delete": {"enabled": True}},
            "http": {"addr": self.host, "relativeurls": True},
        }
        if password:
            hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
            (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
            settings["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
        (folder / "config.yml").write_text(json.dumps(settings))

    def start(self) -> "Registry":
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.program, "serve", str(self.folder / "config.yml")], stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                requests.get(f"http://{self.host}/v2/", timeout=PATIENCE)
                return self
            except requests.ConnectionError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def tags(self, repository: str) -> set[str]:
        """Return every tag but the attachments'."""
        answer = requests.get(f"http://{self.host}/v2/{repository}/tags/list", auth=(USER, PASSWORD), timeout=PATIENCE)
        return {tag for tag in answer.json().get("tags") or () if not tag.startswith("sha256-")}

    def entry(self, immutable: bool = False) -> Oci:
        """Return its entry in registries.yaml, with the credentials in the environment."""
        return Oci(
            kind="oci",
            host=self.host,
            prefix="training",
            credentials=LoginReferences(username="env:TEST_REGISTRY_USER", password="env:TEST_REGISTRY_PASSWORD"),
            immutable=immutable,
        )


class SlowLink:
    """A proxy that passes `rate` bytes a second, and breaks once, after `cut` bytes."""

    def __init__(self, registry: Registry, rate: int, cut: int) -> None:
        self.registry, self.rate, self.cut = registry, rate, cut
        self.sent, self.was_cut = 0, False
        self._open: set[socket.socket] = set()
        self._turn = threading.Lock()
        link = self

        class Relay(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", link.registry.port)) as far:
                    link._open |= {self.request, far}
                    back = threading.Thread(target=link.carry, args=(far, self.request), daemon=True)
                    back.start()
                    link.carry(self.request, far, slowly=True)
                    back.join()

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay, bind_and_activate=False)
        self.server.daemon_threads = True
        # What waits in buffers would be counted as sent.
        self.server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.server.server_bind()
        self.server.server_activate()
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def carry(self, source: socket.socket, target: socket.socket, slowly: bool = False) -> None:
        """Carry bytes from one to the other until one of them ends; then neither goes on."""
        try:
            while chunk := source.recv(1 << 16):
                if slowly:
                    self._wait_for(len(chunk))
                target.sendall(chunk)
        except OSError:
            pass
        for connection in (source, target):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _wait_for(self, size: int) -> None:
        with self._turn:
            time.sleep(size / self.rate)
            self.sent += size
            if self.sent >= self.cut and not self.was_cut:
                self.was_cut = True
                for connection in self._open:
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def entry(self) -> Oci:
        return self.registry.entry().model_copy(update={"host": self.host})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def registry_program(progress: Progress = print) -> Path:
    """docker-registry from Debian, unpacked into the state folder, nothing installed."""
    installed = shutil.which("docker-registry")
    if installed:
        return Path(installed)
    folder = paths.state_folder() / "docker-registry"
    return debian_packages.fetch(["docker-registry"], "bookworm", folder, progress) / "usr" / "bin" / "docker-registry"


@dataclass
class Small:
    """A small image that is in an engine."""

    ref: str
    digest: str


def build_small(
    engine: Engine,
    folder: Path,
    name: str,
    layers: int = 3,
    size: int = 4 << 20,
    output: str = "",
    platform: str = "linux/amd64",
    text: str = "",
) -> Small:
    """Return an image of `layers` layers of random bytes, and a layer with `text`, if any.

    The same folder gives the same layers. The files keep their times: buildx takes those of equal size and time in a
    folder of equal name for unchanged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    labels = {"revision": "0" * 40, "version": planned_image().tag}
    lines = ["FROM scratch", *(f"LABEL org.opencontainers.image.{key}={value}" for key, value in labels.items())]
    for number in range(layers):
        source = folder / f"layer{number}"
        if not source.exists():
            source.write_bytes(os.urandom(size))
        lines.append(f"COPY {source.name} /{source.name}")
    if text:
        (folder / "GPL-3").write_text(text)
        lines.append("COPY GPL-3 /usr/share/common-licenses/GPL-3")
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    metadata = folder / "metadata.json"
    ref = f"rdma-images-test/{name}:small"
    extra = output or "oci-mediatypes=true"
    subprocess.run(
        [
            *("docker", "buildx", "build", "-q", "--provenance=false", f"--metadata-file={metadata}"),
            f"--platform={platform}",
            *(f"--output=type=image,name={ref},{extra}", str(folder)),
        ],
        env=engine.environ(),
        check=True,
        capture_output=True,
    )
    return Small(ref, json.loads(metadata.read_text())["containerimage.digest"])


@functools.cache
def planned_image(target: str = "efa-pytorch", **changes: str) -> Image:
    """Return an image of the real matrix."""
    (image,) = planner.plan(matrix.load(), facts.load(), targets=[target], changes=changes).images
    return image


def green(image: Image, small: Small, rehearsal: tuple[str, ...] = ()) -> tuple[BuildRecord, Report]:
    """Return what the steps before would have written of `small`, as if it were `image`."""
    build = BuildRecord(
        image_id=image.id,
        ref=small.ref,
        digest=small.digest,
        inputs="sha256:" + "1" * 64,
        stand_ins=rehearsal,
        finished="2026-11-21T08:00:00+00:00",
        seconds=12.5,
    )
    report = replace(
        report_on(image, digest=small.digest), ref=small.ref, suite=SUITE, stand_ins=rehearsal, seconds=3.0
    )
    return build, report


def write_steps(image: Image, build: BuildRecord, report: Report) -> None:
    """plan.json, build.json and report.json, where the steps write them."""
    folder = paths.image_folder(image.id)
    for name, value in (
        ("plan", planner.plan_document(image)),
        ("build", asdict(build)),
        ("report", encode_report(report)),
    ):
        atomic.write(folder / f"{name}.json", json.dumps(value))


def cosign_key(folder: Path) -> tuple[Path, Path]:
    """Return a fresh key pair; its password is in COSIGN_PASSWORD."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([cosign.find_program(print).path, "generate-key-pair"], cwd=folder, check=True, capture_output=True)
    return folder / "cosign.key", folder / "cosign.pub"


def _link_or_copy(source: str, target: str) -> None:
    """Link a program, an archive or a list, which nobody changes in its place; copy what is small, as settings are."""
    if Path(source).stat().st_size > LINKED_BYTES:
        with suppress(OSError):  # another file system
            os.link(source, target)
            return
    shutil.copy2(source, target)


def lend_packages(folder: Path) -> None:
    """Give another state folder what this one has of Debian's archive, by hard links where that can be."""
    for name in ("bases", "debian", "engine/packages"):
        if (lent := paths.state_folder() / name).exists():
            shutil.copytree(lent, folder / name, symlinks=True, ignore=UNFINISHED, copy_function=_link_or_copy)


@contextmanager
def second_engine() -> Iterator[Engine]:
    """Provide a private engine with a state folder of its own, which leaves nothing behind.

    It has what comes from Debian's archive, so that it starts in seconds, and no image, layer or cache.
    """
    # pytest's own folders are too deep: a socket's path has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="rdma-images-"))
    lend_packages(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RDMA_IMAGES_STATE", str(folder))
        try:
            yield private.up(print)
        finally:
            private.down(purge=True)
            shutil.rmtree(folder)


def saved_blobs(engine: Engine, image: str) -> dict[str, bytes]:
    """Return the blobs of a small image in the engine, by digest."""
    saved = subprocess.run(["docker", "save", image], env=engine.environ(), stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.name.startswith("blobs/")}
        return {f"sha256:{name.rpartition('/')[2]}": file.read() for name, file in files.items() if file}
