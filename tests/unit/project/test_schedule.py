"""The schedule of workers: modules of a shared part run in turn, none is left out."""

import os
import subprocess
import sys
from pathlib import Path

from rdma_images.core import paths
from tests import conftest

PARTS = ("engine", "engine", "slurm", "slurm", "publish", "publish", "publish", "ssh")
TESTS = """
import os, pathlib, time, pytest

{mark}

@pytest.mark.parametrize("number", range(3))
def test_alone(number):
    part = pathlib.Path({file!r})
    os.close(os.open(part, os.O_CREAT | os.O_EXCL))
    time.sleep(0.05)  # for another worker to come into the way
    part.unlink()
"""


def run(tmp_path: Path, *marks: str) -> subprocess.CompletedProcess[str]:
    """Run a module in e2e/ for each of these lines."""
    folder = tmp_path / "e2e"
    folder.mkdir()
    for number, mark in enumerate(marks):
        text = TESTS.format(mark=mark, file=str(tmp_path / mark.replace("/", "")))
        (folder / f"test_{number}.py").write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  e2e\n  part\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--numprocesses=4", str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(paths.PROJECT)}
    for name in ("PYTEST_ADDOPTS", conftest.OWN_CACHE):
        environ.pop(name, None)
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)


def test_modules_that_share_a_part_run_one_after_the_other(tmp_path: Path) -> None:
    done = run(tmp_path, *(f'pytestmark = pytest.mark.part("{part}")' for part in PARTS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{3 * len(PARTS)} passed" in done.stdout


def test_a_module_without_a_part_is_not_collected(tmp_path: Path) -> None:
    done = run(tmp_path, 'pytestmark = pytest.mark.part("ssh")', "pytestmark = pytest.mark.e2e")
    assert done.returncode != 0
    assert "test_1.py: no part of the machine: add pytest.mark.part" in done.stdout + done.stderr
