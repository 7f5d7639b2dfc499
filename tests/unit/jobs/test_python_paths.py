"""Variables and folders that break the Python of a job's programs."""

from pathlib import Path

import pytest

from rdma_images.jobs.node import python_paths, system
from tests.support.node_files import run_check, write_device, write_file


def test_a_pythonpath_that_breaks_python_is_reported_and_ends_no_check(tmp_path: Path) -> None:
    write_device(tmp_path / "root", "rdmap0", "efa")
    write_file(tmp_path / "modules/random.py", "raise ImportError('of Python 2')\n")
    error, warning = run_check(tmp_path / "root", "--fabric=efa", PYTHONPATH=str(tmp_path / "modules"))
    assert error.startswith("error python: ")
    assert f"does not start with PYTHONPATH={tmp_path}/modules: ImportError: of Python 2: " in error
    assert warning == (
        f"warning python: {tmp_path}/modules/random.py hides Python's own module random from programs: rename it"
    )


@pytest.mark.parametrize(
    ("file", "count"),
    [("queue.py", 1), ("email/__init__.py", 1), ("email/text.txt", 0), ("test/__init__.py", 0), ("train.py", 0)],
)
def test_a_module_in_the_working_directory_that_hides_one_of_pythons_own(
    tmp_path: Path, file: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(tmp_path / file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert len(list(python_paths.check_hidden_modules())) == count


def test_torch_in_pythonpath_is_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "torch-2.15.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert system.torch_version() == "2.15.0"
