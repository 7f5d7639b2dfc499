"""Faults while publishing: a registry dies, stalls, fills up, or refuses a password."""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import bcrypt
import pytest

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.engine import daemon_api, discovery
from rdma_images.engine.docker_command import Engine
from rdma_images.engine.layout import layout
from rdma_images.plan import matrix
from rdma_images.publish import publish_images, push
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.attach import attachments
from rdma_images.publish.destination import open_destination
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.push import PushPolicy
from rdma_images.publish.push_progress import PushProgress
from rdma_images.registry.client import sha256_digest
from tests.e2e.publish_parts import (
    PASSWORD,
    SUITE,
    USER,
    Registry,
    SlowLink,
    Small,
    build_small,
    green,
    placed,
    planned_image,
    registry_program,
    write_steps,
)

pytestmark = [pytest.mark.e2e, pytest.mark.part("publish")]
REPOSITORY = "training/efa-pytorch"


def is_answering(socket: Path) -> bool:
    try:
        return bool(daemon_api.request(socket, "/_ping", 2.0) == "OK")
    except OSError:
        return False


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engines.ensure(print)


@pytest.fixture
def classic(engine: Engine) -> Iterator[Engine]:
    """Yield the same Docker with the image store that it had before containerd's."""
    if engine.kind != "private":
        pytest.skip("a second daemon is started from the private engine's programs")
    folders = layout()
    folder = Path(tempfile.mkdtemp(prefix="cls-"))
    socket = folder / "docker.sock"
    command: list[str | Path] = [
        folders.program("dockerd"),
        f"--host=unix://{socket}",
        "--bridge=none",
        "--iptables=false",
    ]
    command += ["--ip6tables=false", "--config-file", folder / "none.json", "--pidfile", folder / "pid"]
    command += ["--data-root", folder / "data", "--exec-root", folder / "exec"]
    (folder / "none.json").write_text("{}")
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, env=engine.environ(), stdout=log, stderr=log)
    try:
        while not is_answering(socket):
            assert daemon.poll() is None, (folder / "log").read_text()[-2000:]
        store = discovery.image_store(daemon_api.request(socket, "/info", 10.0))
        assert store == "classic"
        env = {**engine.env, "DOCKER_HOST": f"unix://{socket}"}
        yield replace(engine, name="classic", kind="existing", host=f"unix://{socket}", store=store, env=env)
    finally:
        daemon.terminate()
        daemon.wait(60)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def program() -> Path:
    return registry_program()


@pytest.fixture(scope="module")
def small(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    built = build_small(engine, tmp_path_factory.mktemp("context"), "faults", layers=4, size=16 << 20)
    yield built
    engines.client(engine).images.remove(built.ref, force=True)


@pytest.fixture
def item(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApprovedImage:
    monkeypatch.setenv("TEST_REGISTRY_USER", USER)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", PASSWORD)
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    image = planned_image()
    write_steps(image, *green(image, small))
    (approved,) = publish_images.approved_images([image], [image], matrix.load(), SUITE)
    return approved


@dataclass
class Trap:
    """Something that is done once a number of bytes has gone; `lines` are what the publication says."""

    after: int
    action: Callable[[], object]
    sprung: bool = False
    lines: list[str] = field(default_factory=list)

    def watched_progress(self) -> PushProgress:
        """Return the progress of a push, which springs the trap."""
        trap = self

        class Watched(PushProgress):
            def update(self, event: dict[str, Any], host: str, subject: str) -> None:
                super().update(event, host, subject)
                if not trap.sprung and self.sent() >= trap.after:
                    trap.sprung = True
                    trap.action()

        return Watched()


def run(
    engine: Engine,
    item: ApprovedImage,
    registry: Registry | SlowLink,
    watcher: Trap,
    attempts: int = 1,
    stall: int = 20,
) -> publish_images.PublishResult:
    publisher = Publisher(lambda: engine, watcher.lines.append, push_policy=PushPolicy(attempts, 0.2, stall))
    with mock.patch.object(push, "PushProgress", watcher.watched_progress):
        (outcome,) = publish_images.publish([item], {"local": registry.entry()}, publisher)
    return outcome


def never() -> None:
    raise AssertionError("the trap was not meant to spring")


def complete(registry: Registry, digest: str) -> bool:
    """Return whether an image is complete in the registry, with every blob read and hashed."""
    repository = open_destination("local", registry.entry()).repository("efa-pytorch")
    manifest = repository.manifest(digest)
    blobs = [manifest.body["config"]["digest"], *(layer.digest for layer in manifest.layers())]
    return all(sha256_digest(repository.blob(blob)) == blob for blob in blobs)


def assert_complete_and_single(registry: Registry, item: ApprovedImage) -> None:
    assert registry.tags(REPOSITORY) == {item.tags.full, *item.tags.short}
    assert complete(registry, item.build.digest)
    repository = open_destination("local", registry.entry()).repository("efa-pytorch")
    attached = attachments(repository, item.build.digest)
    # The provenance, the bill of materials and the report.
    assert len(attached) == len({descriptor.digest for descriptor in attached}) == 3


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (1, 2))])
def test_a_registry_killed_in_the_middle_ends_with_everything_there_once(
    number: int, engine: Engine, item: ApprovedImage, program: Path, tmp_path: Path
) -> None:
    chance = random.Random(number)
    point = chance.randrange(1, 60 << 20)
    registry = Registry(program, tmp_path / "registry").start()
    try:
        first = run(engine, item, registry, Trap(point, registry.kill))
        registry.kill()
        registry.start()
        repository = open_destination("local", registry.entry()).repository("efa-pytorch")
        # A tag that the registry was about to note is listed, and leads to nothing.
        for tag in filter(repository.find_digest, registry.tags(REPOSITORY) if first.error else ()):
            assert complete(registry, tag), f"{tag} is not whole after a kill at {point} bytes"
        assert first.error, f"killed at {point} bytes, and nobody noticed"
        assert "Traceback" not in first.error
        second = run(engine, item, registry, Trap(1 << 40, never))
        assert second.error == ""
        assert_complete_and_single(registry, item)
    finally:
        registry.kill()


@pytest.mark.parametrize(
    ("stop", "go_on", "seconds", "words"), [("kill", "start", 0.5, "trying again"), ("pause", "resume", 6, "stalled")]
)
def test_a_registry_that_comes_back_is_waited_for(
    engine: Engine, item: ApprovedImage, program: Path, tmp_path: Path, stop: str, go_on: str, seconds: int, words: str
) -> None:
    registry = Registry(program, tmp_path / "registry").start()

    def stop_for_a_while() -> None:
        getattr(registry, stop)()
        threading.Timer(seconds, getattr(registry, go_on)).start()

    try:
        trap = Trap(8 << 20, stop_for_a_while)
        outcome = run(engine, item, registry, trap, attempts=6, stall=3)
        assert outcome.error == "", outcome.error
        assert any(words in line for line in trap.lines), trap.lines
        assert_complete_and_single(registry, item)
    finally:
        registry.kill()


def test_a_password_that_expires_on_the_way_is_fetched_again(
    engine: Engine, item: ApprovedImage, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(program, tmp_path / "registry").start()

    def rotate() -> None:
        hashed = bcrypt.hashpw(b"another", bcrypt.gensalt(4)).decode()
        (registry.folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
        monkeypatch.setenv("TEST_REGISTRY_PASSWORD", "another")

    try:
        trap = Trap(1, rotate)
        outcome = run(engine, item, registry, trap, attempts=3)
        assert trap.sprung
        assert outcome.error == ""
        assert complete(registry, item.build.digest)
    finally:
        registry.kill()


def test_a_full_disk_is_reported_and_the_next_run_goes_on(
    engine: Engine, item: ApprovedImage, program: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system of 24 MB cannot be mounted here: not root")
    registry = Registry(program, tmp_path / "registry", storage=disk).start()
    try:
        first = run(engine, item, registry, Trap(1 << 40, never), attempts=2)
        assert "full disk" in first.error, first.error
        assert registry.tags(REPOSITORY) == set()
        subprocess.run(["mount", "-o", "remount,size=300m", disk], check=True)
        second = run(engine, item, registry, Trap(1 << 40, never))
        assert second.error == ""
        assert_complete_and_single(registry, item)
    finally:
        registry.kill()
        subprocess.run(["umount", disk], check=True)


def test_a_slow_link_that_is_cut_is_not_taken_for_a_stall(
    engine: Engine, item: ApprovedImage, program: Path, tmp_path: Path
) -> None:
    """Until a second try passes the point of the cut, more time goes by than a stall may take."""
    registry = Registry(program, tmp_path / "registry").start()
    link = SlowLink(registry, rate=4 << 20, cut=40 << 20)
    try:
        trap = Trap(1 << 40, never)
        outcome = run(engine, item, link, trap, attempts=2, stall=9)
        assert outcome.error == "", outcome.error
        assert link.was_cut
        assert not any("stalled" in line for line in trap.lines), trap.lines
        assert placed(outcome).traffic.pushed == placed(outcome).bytes
        assert_complete_and_single(registry, item)
    finally:
        link.close()
        registry.kill()


def test_ctrl_c_leaves_no_tag_and_the_next_run_goes_on(
    engine: Engine, item: ApprovedImage, program: Path, tmp_path: Path
) -> None:
    registry = Registry(program, tmp_path / "registry").start()

    def interrupt() -> None:
        registry.pause()  # or a fast machine is done before the signal arrives
        os.kill(os.getpid(), signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt) as raised:  # its frames live on, as they do in a program that reports it
            run(engine, item, registry, Trap(1, interrupt))
        registry.resume()
        threading.Event().wait(2)  # had docker gone on, it would have ended by now
        assert raised.traceback
        assert registry.tags(REPOSITORY) == set()
        assert run(engine, item, registry, Trap(1 << 40, never)).error == ""
        assert_complete_and_single(registry, item)
    finally:
        registry.kill()


def test_an_engine_with_the_classic_store_is_refused_before_a_byte(
    classic: Engine, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_REGISTRY_USER", USER)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", PASSWORD)
    build = build_small(classic, tmp_path / "context", "classic", layers=1, size=1 << 20)
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    image = planned_image()
    write_steps(image, *green(image, build))
    (item,) = publish_images.approved_images([image], [image], matrix.load(), SUITE)
    registry = Registry(program, tmp_path / "registry").start()
    try:
        outcome = run(classic, item, registry, Trap(1 << 40, never))
        assert "classic image store" in outcome.error
        assert "turn on its containerd image store" in outcome.error
        assert registry.tags(REPOSITORY) == set()
    finally:
        registry.kill()


def test_a_layer_that_the_registry_lost_the_bytes_of_is_reported(
    engine: Engine, item: ApprovedImage, program: Path, tmp_path: Path
) -> None:
    """As after a power failure; docker skips the layer, for the registry claims to have it."""
    registry = Registry(program, tmp_path / "registry").start()
    try:
        assert run(engine, item, registry, Trap(1 << 40, never)).error == ""
        registry.kill()
        shutil.rmtree(registry.storage / "docker/registry/v2/repositories" / REPOSITORY / "_manifests")
        largest = max(registry.storage.rglob("data"), key=lambda path: path.stat().st_size)
        largest.write_bytes(b"")
        registry.start()
        outcome = run(engine, item, registry, Trap(1 << 40, never))
        assert f"sha256:{largest.parent.name}" in outcome.error
        assert "damaged" in outcome.error
        assert registry.tags(REPOSITORY) == {item.tags.full}
    finally:
        registry.kill()
