"""What the tests of publishing share: the image that they publish, and folders of their own."""

from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.plan import matrix, planner


@pytest.fixture
def image() -> Image:
    """Return the planned efa-pytorch."""
    (planned,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return planned


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
