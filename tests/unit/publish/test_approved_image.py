"""The build contexts of a fabric that is added to an image that exists."""

from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.publish.approved_image import read_build
from tests.support.existing_images import REF, existing, planned_onto


def test_the_command_that_builds_it_names_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=f"run `invoke build --target mine --onto {REF}` first"):
        read_build(planned_onto(existing(), tmp_path, monkeypatch))
