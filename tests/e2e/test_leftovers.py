"""What a run of all tests leaves on the machine, in an engine of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.core.image import ID_LABEL
from rdma_images.engine import docker_command, private, prune, status
from rdma_images.engine.layout import layout
from tests.e2e import private_engine
from tests.e2e.publish_parts import second_engine
from tests.support.leftovers import Snapshot

pytestmark = [pytest.mark.e2e, pytest.mark.part("another-engine"), private_engine.needs]
CONTENT = 8_000_000  # bytes


def build(folder: Path, name: str) -> None:
    folder.mkdir()
    (folder / "file").write_text((name * CONTENT)[:CONTENT])
    (folder / "Dockerfile").write_text(f"FROM scratch\nLABEL {ID_LABEL}={name}\nCOPY file /\n")
    running = private.up()
    docker_command.output(running, "buildx", "build", "--provenance=false", f"--tag=rdma-images/{name}:1", str(folder))


def test_what_was_there_stays_and_what_tests_made_goes(tmp_path: Path) -> None:
    with second_engine() as engine:
        build(tmp_path / "before", "before")
        before = Snapshot.take()
        assert before
        build(tmp_path / "new", "new")
        layer = paths.state_folder() / "layers" / "new"
        layer.mkdir(parents=True)
        assert {image.ref for image in prune.unused_images(engine, ())} == {"rdma-images/before:1", "rdma-images/new:1"}
        before.restore()
        assert [image.ref for image in prune.unused_images(engine, ())] == ["rdma-images/before:1"]
        assert not layer.exists()
        assert (paths.state_folder() / "bases").exists()
        assert before.cache
        assert status.build_cache_bytes(layout()) - before.cache < CONTENT / 2  # the builder keeps kilobytes of its own


def test_prune_removes_what_the_matrix_does_not_have(tmp_path: Path) -> None:
    with second_engine() as engine:
        build(tmp_path / "old", "old")
        prune_command = [sys.executable, "-m", "invoke", "engine.prune"]
        done = subprocess.run(prune_command, cwd=paths.PROJECT, capture_output=True, text=True, check=True)
        assert "removed rdma-images/old:1" in done.stdout
        assert prune.unused_images(engine, ()) == ()
