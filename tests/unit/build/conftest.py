"""Fixtures of the tests of builds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rdma_images.engine import Engine


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
