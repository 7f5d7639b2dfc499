"""Fixtures of tests in several packages."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.engine import Engine
from rdma_images.plan import matrix, planner
from tests.support.loopback import Site, serve


@pytest.fixture
def site() -> Iterator[Site]:
    """Yield a web server on the loopback interface."""
    with serve() as running:
        yield running


@pytest.fixture
def image() -> Image:
    """Return the planned efa-pytorch."""
    (image,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return image


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a state folder of its own."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a state folder and a folder of images of its own."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")


@pytest.fixture
def answering_engine(tmp_path: Path) -> Callable[..., Engine]:
    """Return a function that makes an engine whose docker command prints the given answer."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()

    def engine_that_answers(answer: str = "") -> Engine:
        (tmp_path / "answer").write_text(answer)
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
        program.chmod(0o755)
        return Engine(
            "x", "existing", "unix:///x", "28.2", "0.24", "containerd", "default", {"PATH": f"{program.parent}:/bin"}
        )

    return engine_that_answers
