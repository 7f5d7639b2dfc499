"""The processes that make layers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rdma_images.core import paths

WAITING = """
import os, time
from rdma_images.layers.make_wheel_layer import process_pool

if __name__ == "__main__":
    print(process_pool(1).submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""
INTERRUPTED = """
import os, time
from rdma_images.layers.make_wheel_layer import process_pool

if __name__ == "__main__":
    pool = process_pool(1)
    pool.submit(os.getpid).result()
    try:
        print("waiting", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        pool.shutdown(cancel_futures=True)
        print("ended")
"""
PATIENCE = 60  # seconds


def test_they_end_with_a_build_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True, cwd=paths.PROJECT
    ) as build:
        assert build.stdout
        process = int(build.stdout.readline())
        build.kill()
    deadline = time.monotonic() + PATIENCE
    while _runs(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(process)


def test_ctrl_c_ends_them_without_a_word() -> None:
    """A terminal sends it to the processes, too."""
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=paths.PROJECT,
        start_new_session=True,
    ) as build:
        assert build.stdout
        build.stdout.readline()
        os.killpg(build.pid, signal.SIGINT)
        assert build.communicate(timeout=PATIENCE) == ("ended\n", "")


def _runs(process: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
