"""Files that hold a log, or none: pipes, and sizes."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.jobs.results.run_results import judge_log
from rdma_images.nccl_logs.verdict import judge_lines

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"


@pytest.mark.parametrize("line", ['{"a":' * 100_000, "{", '{"log": 5}', "[" * 100_000])
def test_json_that_is_none_is_a_line_like_others(line: str) -> None:
    assert judge_lines([line], load_log_patterns()).network == "unknown"


def test_a_log_through_a_pipe_is_read() -> None:
    with (
        (LOGS / "net-socket.log").open("rb") as file,
        subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as writer,
    ):
        assert writer.stdout
        assert judge_log(Path(f"/dev/fd/{writer.stdout.fileno()}")) == judge_log(LOGS / "net-socket.log")


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(RdmaImagesError, match="no such log"):
        judge_log(path)
    for no_log in (tmp_path, Path("/dev/zero")):
        with pytest.raises(RdmaImagesError, match="neither a file nor a pipe"):
            judge_log(no_log)
    path.write_bytes(gzip.compress(b"NCCL INFO"))
    with pytest.raises(RdmaImagesError, match="compressed"):
        judge_log(path)


LONG = 50_000_000  # bytes


# The peak is read from /proc: a process's ru_maxrss begins with that of the one that started it.
READ = """
import resource, sys
from pathlib import Path
from rdma_images.jobs.results.run_results import judge_log
judge_log(Path(sys.argv[1]))
used = resource.getrusage(resource.RUSAGE_SELF)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(used.ru_utime + used.ru_stime, peak)
"""


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("\n" * 1000, id="newlines"),
        pytest.param("x" * 1000, id="one-line"),
        pytest.param(
            "node:1:1 [0] NCCL INFO AllReduce: opCount {} recvbuff 0x7f{} count 1024 datatype 7 op 0 root 0\n",
            id="calls",
        ),
    ],
)
def test_a_long_log_takes_little_memory_and_time(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        block = "".join(line.format(n, n) for n in range(1000))
        for _ in range(LONG // len(block)):
            file.write(block)
    completed = subprocess.run(
        [sys.executable, "-c", READ, str(path)], cwd=paths.PROJECT, capture_output=True, text=True
    )
    seconds, kilobytes = map(float, completed.stdout.split())
    assert kilobytes < 80_000
    assert seconds < 5  # of processor time, twice what a busy machine needed
