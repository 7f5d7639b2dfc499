"""Time the verdict of a job: 512 logs of 100 kB, and one of 200 MB. Print seconds.

Wall time and processor time of the whole process, and its peak of memory. The logs have the lines of real ones: those
of NCCL's start, channels to 97 peers and inside the node, rings and trees, which are most of a large job's log, and
calls of collectives, as with NCCL_DEBUG_SUBSYS=COLL.

python benchmarks/job_verdict.py
"""

import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rdma_images.jobs.results import from_logs

RANKS, GPUS = 512, 8
SMALL, LARGE = 100_000, 200_000_000  # bytes
REAL = Path(__file__).parent.parent / "tests" / "data" / "results" / "2.19.6-tcp-provider.txt"


def main() -> None:
    """Print what the verdict of each set of logs takes."""
    with tempfile.TemporaryDirectory() as folder:
        many, large = Path(folder) / "many", Path(folder) / "large"
        total = write_logs(many)
        large.mkdir()
        with (large / "0.log").open("w") as file:
            text = (many / "0.log").read_text()
            while file.tell() < LARGE:
                file.write(text)
        print_cost(f"{RANKS} logs, {total / 1e6:.0f} MB", many)
        print_cost(f"1 log, {LARGE / 1e6:.0f} MB", large)


def write_logs(folder: Path) -> int:
    """Write a log for each rank; return the bytes of all."""
    folder.mkdir()
    lines = REAL.read_text().split("\n")
    start = [
        line for line in lines if line.startswith("vm:2543:2543") and "Channel" not in line and "HOSTID" not in line
    ]
    rows = [line for line in lines if "NCCL" not in line]
    for rank in range(RANKS):
        prefix = f"ip-10-0-{rank // GPUS}-1:{4000 + rank % GPUS}:{4000 + rank % GPUS}"
        rank_lines = [_line_of_rank(line, prefix, rank) for line in start]
        size, n = sum(map(len, rank_lines)), 0
        while size < SMALL:
            rank_lines.append(f"{prefix} [{rank % GPUS}] NCCL INFO {_message(rank, n)}")
            size, n = size + len(rank_lines[-1]) + 1, n + 1
        (folder / f"{rank}.log").write_text("\n".join([*rank_lines, *(rows if rank == 0 else ())]) + "\n")
    return sum(path.stat().st_size for path in folder.iterdir())


def _message(rank: int, n: int) -> str:
    """Return the line number `n` of a rank's log."""
    gpu, peer, beside = rank % GPUS, (rank + n % 97) % RANKS, rank - rank % GPUS + n % GPUS
    return (
        f"Channel {n % 64:02}/0 : {rank}[{gpu}] -> {peer}[{peer % GPUS}] [send] via NET/Libfabric/{n % GPUS}/GDRDMA",
        f"Channel {n % 64:02}/0 : {rank}[{gpu}] -> {beside}[{beside % GPUS}] via P2P/CUMEM",
        f"Ring {n % 64:02} : {(rank - 1) % RANKS} -> {rank} -> {peer} comm 0x55{n:08x} nRanks {RANKS} busId 53000",
        f"Trees [{n % 64}] {peer}/-1/-1->{rank}->{beside}",
        f"AllReduce: opCount {n:x} sendbuff 0x7f{n << 12:010x} recvbuff 0x7f{n << 13:010x} count {n} datatype 7 op 0",
    )[n % 5]


def _line_of_rank(line: str, prefix: str, rank: int) -> str:
    """Return a line of the real log, of another rank of a larger job on EFA."""
    line = (
        re.sub(r"^vm:2543:\d+", prefix, line).replace("rank 0", f"rank {rank}").replace("nranks 2", f"nranks {RANKS}")
    )
    line = line.replace("nRanks 2", f"nRanks {RANKS}").replace("nNodes 2", f"nNodes {RANKS // GPUS}")
    return line.replace("is tcp, fabric is 192.0.2.0/24 (found 1 nics)", "is efa, fabric is efa-direct (found 32 nics)")


def print_cost(name: str, folder: Path) -> None:
    """Judge the logs in a process of their own, and print what that took."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.run(
        [sys.executable, __file__, str(folder)], capture_output=True, text=True, check=True, cwd=REAL.parents[3]
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak, sentence = process.stdout.split(" ", 1)
    print(f"{name}: {time.perf_counter() - began:.1f} s, {used:.1f} s of processor time, {int(peak) / 1e3:.0f} MB")
    print(f"  {sentence.strip()}")


def print_verdict(folder: Path) -> None:
    """Print the peak of memory and the verdict of the logs in a folder."""
    result = from_logs.read_job_result([folder])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, result.sentence)


if __name__ == "__main__":
    print_verdict(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
