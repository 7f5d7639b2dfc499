"""Progress lines on standard error; standard output has the answer alone."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]  # takes one plain line of progress


def progress(line: str) -> None:
    """Print one plain line of progress to standard error."""
    if sys.stderr is not None:  # closed: print would take standard output
        sys.stderr.write(f"{line}\n")  # at once: others say something at the same time
        sys.stderr.flush()


WAIT = 20.0  # seconds between two lines about what is waited for


@contextmanager
def report_waiting(report: Progress, describe: Callable[[], str], interval: float = WAIT) -> Iterator[None]:
    """Report every `interval` seconds what is waited for, until the block ends."""
    start = time.monotonic()

    def report_wait() -> float:
        report(f"waiting for {describe()}, {time.monotonic() - start:.0f} s by now")
        return interval

    with run_periodically(report_wait, interval):
        yield


def silent(line: str) -> None:
    """Ignore progress, for callers that want none."""


@contextmanager
def run_periodically(work: Callable[[], float], first_wait: float) -> Iterator[None]:
    """Call `work` in a thread until the block ends, each time after the seconds it returned.

    The end of the block waits for a call that has begun. An exception of `work` ends the calls.
    """
    has_ended = threading.Event()

    def repeat() -> None:
        wait = first_wait
        while not has_ended.wait(wait):
            wait = work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
