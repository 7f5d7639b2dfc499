"""Time the validation of a data path: reading, starting, each exchange. Print medians.

python benchmarks/datapath.py rdma-images/efa-pytorch:<tag> …     images of the engine
"""

import os
import sys
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from rdma_images import datapath, engine
from rdma_images.datapath import guest_files

RUNS = 3


def main() -> None:
    """Print the median seconds of each part, for each image that is named."""
    running = engine.ensure(print_progress)
    guest_files.prepare(print_progress)
    print(f"{os.cpu_count()} cores, {RUNS} runs; load at the start {os.getloadavg()[0]:.1f}")
    for ref in sys.argv[1:]:
        print(ref)
        for part, seconds in time_parts(ref, running).items():
            print(f"{median(seconds):8.1f} s   ({min(seconds):.1f} to {max(seconds):.1f})  {part}")
    print(f"load at the end {os.getloadavg()[0]:.1f}")


def time_parts(ref: str, running: engine.Engine) -> dict[str, list[float]]:
    """Return the seconds of every part in each run; parts that took none are left out."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(RUNS):
        times = [perf_counter()]
        with tempfile.TemporaryDirectory() as folder:
            checks = datapath.run(ref, running, progress=partial(note_time, times), folder=Path(folder))
        # The first lines are of reading out, of starting, and of the first check when it was done.
        seconds["the image read from the engine"].append(times[2] - times[1])
        seconds["two machines started and looked at"].append(times[3] - times[2] - checks[0].seconds)
        for check in checks:
            if check.outcome != "skipped":
                seconds[check.title].append(check.seconds)
        seconds["altogether"].append(perf_counter() - times[0])
    return seconds


def note_time(times: list[float], _line: str) -> None:
    """Add the time of a line of progress to `times`."""
    times.append(perf_counter())


def print_progress(line: str) -> None:
    """Print a line of progress to standard error."""
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
