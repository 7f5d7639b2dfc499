"""Files that are there whole or not at all."""

import os
from pathlib import Path

import pytest

from rdma_images.core import atomic
from rdma_images.core.files import FileError


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileError, match="nothing may take its place"):
        atomic.write(pipe, "text")
    assert pipe.is_fifo()
