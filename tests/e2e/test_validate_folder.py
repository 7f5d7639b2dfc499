"""`validate --folder` of a virtual environment with NVIDIA's NCCL, opened by a process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.core.paths import PROJECT

pytestmark = pytest.mark.e2e
OPEN = """import ctypes, sys
version = ctypes.c_int()
assert ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(version)) == 0
print(version.value)"""


def test_the_nccl_of_an_environment_is_the_one_that_its_programs_open(tmp_path: Path) -> None:
    environment = tmp_path / "training"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = [f"{environment}/bin/pip", "install", "--quiet", "nvidia-nccl-cu13"]
    subprocess.run(install, check=True, capture_output=True)
    command = [sys.executable, "-m", "invoke", "validate", "--folder", str(environment), "--instance", "p5.48xlarge"]
    done = subprocess.run([*command, "--json"], cwd=PROJECT, capture_output=True, text=True)
    report = json.loads(done.stdout)
    (path,) = report["facts"]["measured"]["tree"]["libraries"]["nccl"]
    assert path.startswith(str(environment))
    version = report["facts"]["measured"]["tree"]["libraries"]["nccl"][path]["banner"].partition("+")[0]
    opened = subprocess.run(
        [environment / "bin" / "python", "-c", OPEN, path], capture_output=True, text=True, check=True
    )
    major, minor_and_patch = divmod(int(opened.stdout), 10000)
    assert version == f"{major}.{minor_and_patch // 100}.{minor_and_patch % 100}"
    assert "NCCL finds no libnccl-net.so" in json.dumps(report["chain"])
    assert done.returncode == 1  # on p5.48xlarge, which was asked for, it would be TCP
    assert "plugin.found" in [check["id"] for check in report["checks"] if check["outcome"] == "failed"]
    assert not [check["id"] for check in report["checks"] if check["id"].startswith(("layers.", "label.", "user."))]
