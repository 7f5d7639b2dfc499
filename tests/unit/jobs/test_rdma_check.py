"""The file that a training imports: real logs of NCCL, written by a process while another thread of it reads."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rdma_images.jobs.node import rdma_check

SOURCE = Path(rdma_check.__file__)
LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"
TRAINING = """
import os, socket, sys, threading
import rdma_check
rdma_check.start(2)
path = os.environ["NCCL_DEBUG_FILE"].replace("%h", socket.gethostname().split(".")[0]).replace("%p", str(os.getpid()))
with open(path, "w") as log:
    for line in open(sys.argv[1]):
        log.write(line)
[thread.join() for thread in threading.enumerate() if thread.name == "rdma_check"]
print("trained")
"""


FAILING = """
import os, socket, sys
import rdma_check
rdma_check.start(0)
path = os.environ["NCCL_DEBUG_FILE"].replace("%h", socket.gethostname().split(".")[0]).replace("%p", str(os.getpid()))
open(path, "w").write(sys.argv[1] + chr(10))
raise RuntimeError("ncclRemoteError")
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("net.cc:1 NCCL WARN Message truncated : received 8 bytes", "NCCL's first warning: Message truncated"),
        ("NCCL INFO Using network IB", ""),
    ],
)
def test_an_exception_is_explained_by_nccls_log(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "rdma_check.py").write_text(SOURCE.read_text().replace("os._exit(1)", "return"))
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '.'){FAILING}", f"node:1:1 [0] {line}"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "RuntimeError: ncclRemoteError" in completed.stderr
    assert reason in completed.stderr
    assert ("rdma_check: rank ? on" in completed.stderr) == bool(reason)


@pytest.mark.parametrize(
    ("log", "code", "reason"),
    [
        ("net-socket", 1, "the channels use NET/Socket; NET/Plugin"),
        ("gpu-two-nodes", 1, "libfabric chose tcp, not EFA"),
        ("p2p-default", 0, ""),
    ],
)
def test_a_training_ends_with_the_reason(tmp_path: Path, log: str, code: int, reason: str) -> None:
    """The file is alone in the folder of the training, as a user has it."""
    (tmp_path / "rdma_check.py").write_text(SOURCE.read_text())
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINING))
    completed = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            "import sys; sys.path.insert(0, '.'); exec(open('train.py').read())",
            LOGS / f"{log}.log",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == code, completed.stderr
    assert reason in completed.stderr
    assert ("trained" in completed.stdout) == (code == 0)
    if code:
        assert completed.stderr.startswith("rdma_check: rank ? on ")
