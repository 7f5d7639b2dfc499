"""A login in a mirror's address, with or without a scheme, is in no output of the tasks that read mirrors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import copied

HOST = "127.0.0.1:1"  # where nothing answers
KINDS = ("base", "download", "index", "apt")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout whose bases and downloads have no locks, so that each is asked for."""
    return copied(tmp_path_factory.mktemp("checkout"))


@pytest.mark.parametrize(
    ("task", "scheme", "shows"),
    [
        ("sources", "", True),
        ("sources", "http://", True),
        ("sources --json", "", True),
        ("lock --upgrade", "", True),
        pytest.param("lock", "http://", True, marks=pytest.mark.exhaustive, id="tries again for 10 s"),
        ("ci.locked", "", False),
    ],
)
@pytest.mark.parametrize("in_file", [True, False], ids=["mirrors.yaml", "environment"])
def test_a_mirror_is_shown_without_its_login(
    checkout: Path, task: str, scheme: str, shows: bool, in_file: bool
) -> None:
    address = f"{scheme}u:SECRET@{HOST}/x/"
    lines = [f"  {kind}: {address}" for kind in KINDS]
    (checkout / "mirrors.yaml").write_text("\n".join(["sources:", *lines]) if in_file else "{}")
    variables = {} if in_file else {f"RDMA_IMAGES_MIRROR_{kind.upper()}": address for kind in KINDS}
    environ = {**os.environ, "RDMA_IMAGES_STATE": str(checkout / "state"), **variables}
    command = [sys.executable, "-m", "invoke", *task.split(), "--target", "erdma-nccl-tests"]
    completed = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True)
    output = completed.stdout + completed.stderr
    assert completed.returncode in (1, 2), output
    assert "SECRET" not in output
    assert (HOST in output) == shows
    locks = [path.read_text() for path in (checkout / "locks").rglob("*") if path.is_file()]
    assert not any("SECRET" in text for text in locks)
