"""What the checks of a node ask the loader."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.jobs.node import system

NCCL = "int ncclGetVersion(int *version) { *version = %d; return 0; }\n"


def build_nccl(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True)
    options = ("-shared", "-fPIC", "-x", "c", "-o", str(path), "-")
    subprocess.run(["gcc", *options], input=source, text=True, check=True)


@pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler is here")
def test_the_library_that_lacks_a_symbol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in rwth-i6/returnn issue 1802 and rapidsai/cugraph issue 4465: an older NCCL comes before torch's."""
    new, old = tmp_path / "new/nvidia/nccl/lib/libnccl.so.2", tmp_path / "old/nvidia/nccl/lib/libnccl.so.2"
    build_nccl(new, NCCL % 22809 + "int ncclMemFree(void) { return 0; }\n")
    build_nccl(old, NCCL % 21403)
    message = "ImportError: libtorch_cuda.so: undefined symbol: %s"
    monkeypatch.setattr(sys, "path", [str(tmp_path / "new")])
    assert system.nccl_version() == (2, 28, 9)
    assert system.describe_symbol_library(message % "ncclMemFree") == ""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "new"), str(tmp_path / "old")])
    assert system.describe_symbol_library(message % "ncclMemFree") == f"; {old}, version 2.14.3, lacks it"
    assert system.describe_symbol_library(message % "cublasLtCreate") == ""
    assert system.describe_symbol_library("No module named numpy") == ""
    monkeypatch.setattr(system, "read_file", lambda _: f"7f00-7f10 r-xp 0 0:1 9 {old}\n")
    assert system.nccl_version() == (2, 14, 3)
