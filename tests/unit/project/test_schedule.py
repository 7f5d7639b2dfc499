"""The schedule of workers: modules of a shared part run in turn, none is left out."""

import os
import subprocess
import sys
from pathlib import Path

from rdma_images.core import paths
from tests import conftest

TESTS = """
import os, pathlib, time, pytest

@pytest.mark.parametrize("number", range(3))
def test_alone(number):
    part = pathlib.Path({file!r})
    os.close(os.open(part, os.O_CREAT | os.O_EXCL))
    time.sleep(0.05)  # for another worker to come into the way
    part.unlink()
"""


def test_modules_that_share_a_part_run_one_after_the_other(tmp_path: Path) -> None:
    folder = tmp_path / "e2e"
    folder.mkdir()
    modules = [*conftest.APART, "test_of_the_engine", "test_another_of_the_engine"]
    for module in modules:
        part = conftest.part(f"tests/e2e/{module}.py::test_alone")
        (folder / f"{module}.py").write_text(TESTS.format(file=str(tmp_path / part)), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = e2e: a part of the machine\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--numprocesses=4", str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(paths.PROJECT)}
    for name in ("PYTEST_ADDOPTS", conftest.OWN_CACHE):
        environ.pop(name, None)
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{3 * len(modules)} passed" in done.stdout
