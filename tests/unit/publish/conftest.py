"""The image that the tests of publishing publish."""

import pytest

from rdma_images import facts
from rdma_images.core.pipeline import Image
from rdma_images.plan import matrix, planner


@pytest.fixture
def image() -> Image:
    """Return the planned efa-pytorch."""
    (planned,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return planned
