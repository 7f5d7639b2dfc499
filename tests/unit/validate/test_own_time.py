"""The time that a process takes by itself counts, and not what others keep it from."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rdma_images.validate.probes import own_time, tools

LOOP = "while True: pass"


@contextmanager
def running(program: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Provide a process of Python that has begun to run `program`."""
    words = [sys.executable, "-uc", f"print()\n{program}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def counted(pid: int, looks: int, seconds: float = 0.2) -> float:
    clock = own_time.OwnTime(pid)
    for _ in range(looks):
        time.sleep(seconds)
        clock.seconds()
    return clock.total


def test_what_sleeps_takes_its_time() -> None:
    with running("import time; time.sleep(600)") as process:
        assert counted(process.pid, 8) > 0.9


def test_what_computes_takes_processor_time_and_no_more_than_has_passed() -> None:
    with running(f"import os; os.fork(); {LOOP}") as process:
        begun = time.monotonic()
        taken = counted(process.pid, 5)
        assert 0.0 < taken <= time.monotonic() - begun


def test_what_waits_for_a_processor_takes_no_time() -> None:
    """Twelve others of the highest priority leave it nearly nothing of the one processor that they share."""
    one = {min(os.sched_getaffinity(0))}
    with running(LOOP) as process:
        others = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(12)]
        try:
            for pid in (process.pid, *(other.pid for other in others)):
                os.sched_setaffinity(pid, one)
            os.setpriority(os.PRIO_PROCESS, process.pid, 19)
            begun = time.monotonic()
            assert counted(process.pid, 10) < 0.5 * (time.monotonic() - begun)
        finally:
            for other in others:
                other.kill()
                other.wait()


def test_a_tool_is_stopped_by_its_own_time() -> None:
    rc, out, _ = tools.run_bounded([sys.executable, "-uc", f"print(1)\n{LOOP}"], 0.5, 100)
    assert (rc, out) == (None, b"1\n")
    assert tools.run_bounded([sys.executable, "-c", "print(1)"], 10, 100)[:2] == (0, b"1\n")
