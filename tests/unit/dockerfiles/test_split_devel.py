"""What only a devel image needs leaves the runtime image, and RECORD is true in both."""

import csv
import re
import runpy
from pathlib import Path

import pytest

from rdma_images.core import paths

split_devel = runpy.run_path(str(paths.DATA / "dockerfiles" / "scripts" / "split_devel.py"))
patterns, split = split_devel["patterns"], split_devel["split"]

TOOL = "../../../bin/x"
FILES = ("torch/__init__.py", "torch/include/ATen/ATen.h", "torch/lib/libtorch.so", "torch/lib/libfoo.a", TOOL)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a wheel as an installer leaves it: every file with two bytes, and RECORD."""
    site = tmp_path / "lib" / "python3" / "site-packages"
    for name in FILES:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("ab")
    record = site / "torch-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("".join(f"{name},sha256=x,2\n" for name in FILES) + "torch-1.0.dist-info/RECORD,,\n")
    return site


def listed(folder: Path) -> list[str]:
    with (folder / "torch-1.0.dist-info" / "RECORD").open() as file:
        return [row[0] for row in csv.reader(file)]


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_records_tell_what_is_there(site: Path, tmp_path: Path) -> None:
    devel = tmp_path / "devel"
    moved = split(site / "torch-1.0.dist-info" / "RECORD", site, devel, patterns("# why\ntorch/include/*\n*.a\n"))
    assert moved == 4
    assert files_below(site) == {"torch/__init__.py", "torch/lib/libtorch.so", "torch-1.0.dist-info/RECORD"}
    assert listed(site) == ["torch/__init__.py", "torch/lib/libtorch.so", TOOL, "torch-1.0.dist-info/RECORD"]
    assert files_below(devel) == {"torch/include/ATen/ATen.h", "torch/lib/libfoo.a", "torch-1.0.dist-info/RECORD"}
    assert listed(devel) == [*FILES, "torch-1.0.dist-info/RECORD"]


def test_no_empty_folder_is_left(site: Path, tmp_path: Path) -> None:
    split(site / "torch-1.0.dist-info" / "RECORD", site, tmp_path / "devel", patterns("torch/include/*"))
    assert not (site / "torch" / "include").exists()
    assert (site / "torch").exists()


def test_a_wheel_without_devel_files_is_left_alone(site: Path, tmp_path: Path) -> None:
    before = (site / "torch-1.0.dist-info" / "RECORD").read_bytes()
    assert split(site / "torch-1.0.dist-info" / "RECORD", site, tmp_path / "devel", patterns("*.lib")) == 0
    assert (site / "torch-1.0.dist-info" / "RECORD").read_bytes() == before
    assert not (tmp_path / "devel").exists()


def listed_patterns() -> re.Pattern[str]:
    compiled: re.Pattern[str] = patterns((paths.DATA / "dockerfiles" / "devel-files.txt").read_text())
    return compiled


@pytest.mark.parametrize(
    "path",
    [
        "torch/include/ATen/ATen.h",
        "nvidia/cu13/lib/libcudart_static.a",
        "torch/_C/__init__.pyi",
        "sympy/core/tests/test_basic.py",
        "triton/plugins/libTritonPluginsTestLib.so",
    ],
)
def test_devel_files(path: str) -> None:
    assert listed_patterns().match(path)


@pytest.mark.parametrize(
    "path",
    [
        "nvidia/cu13/include/cuda_fp16.h",  # NVRTC's
        "nvidia/nccl/include/nccl_device.h",
        "triton/backends/nvidia/include/cuda.h",  # of every kernel's launcher
        "triton/backends/nvidia/bin/ptxas",
        "nvidia/nvshmem/lib/libnvshmem_device_sm_90.bc",
        "torch/testing/__init__.py",
        "numpy/testing/__init__.py",
        "sympy/testing/__init__.py",
        "jinja2/tests.py",
        "mpmath/tests/runtests.py",  # imported by mpmath
        "torch/lib/libtorch_cuda.so",
    ],
)
def test_what_is_loaded_at_run_time_stays(path: str) -> None:
    assert not listed_patterns().match(path)
