"""Fixtures of tests in several packages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths
from rdma_images.core.image import Image
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
    (planned,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return planned


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a state folder and a folder of images of its own."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
