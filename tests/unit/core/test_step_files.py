"""Results of steps are read back as written; a broken file names its command."""

import os
from pathlib import Path
from typing import Any

import pytest

from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import BuildRecord
from rdma_images.core.step_files import BUILD_FILE, StepFile
from rdma_images.publish.publication import PUBLICATION
from rdma_images.report import REPORT

STAND_INS = ("efa-installer-1.50.0",)
BUILD_OF_EFA = BuildRecord("efa-1", "r", "sha256:1", "sha256:2", STAND_INS, "2026-11-21T08:00:00+00:00", 1.5)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")


def test_a_step_reads_what_the_one_before_wrote() -> None:
    assert BUILD_FILE.read("efa-1") is None
    BUILD_FILE.write("efa-1", BUILD_OF_EFA)
    assert BUILD_FILE.read("efa-1") == BUILD_OF_EFA


@pytest.mark.parametrize("file", [BUILD_FILE, REPORT, PUBLICATION], ids=lambda file: file.name)
@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b"null", b"[" * 100_000, b"\xff", b'{"ref": NaN}'])
def test_a_broken_file_is_named_with_the_command_that_writes_it(file: StepFile[Any], text: bytes) -> None:
    path = file.path("efa-1")
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    with pytest.raises(RdmaImagesError) as caught:
        file.read("efa-1")
    problem, fix = str(caught.value).split("\n")
    assert problem.startswith(f"{path}: ")
    assert fix == f"run `invoke {file.step}` again"
    assert file.read_if_valid("efa-1") is None


def test_a_folder_or_a_link_to_nothing_is_no_file_of_a_step() -> None:
    BUILD_FILE.path("efa-1").mkdir(parents=True)
    PUBLICATION.path("efa-1").symlink_to("nowhere")
    for file in (BUILD_FILE, PUBLICATION):
        with pytest.raises(RdmaImagesError, match=rf"{file.name}: .+\n.+"):
            file.read("efa-1")


def test_a_named_pipe_is_no_file_of_a_step() -> None:
    """Opening it would wait for a writer that nobody starts."""
    BUILD_FILE.path("efa-1").parent.mkdir(parents=True)
    os.mkfifo(BUILD_FILE.path("efa-1"))
    with pytest.raises(RdmaImagesError, match=r"build\.json: is a named pipe"):
        BUILD_FILE.read("efa-1")
