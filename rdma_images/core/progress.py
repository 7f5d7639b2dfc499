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


REPORT_INTERVAL = 20.0  # seconds between two lines about what is waited for


def silent(line: str) -> None:
    """Ignore progress, for callers that want none."""


@contextmanager
def report_waiting(report: Progress, describe: Callable[[], str], interval: float = REPORT_INTERVAL) -> Iterator[None]:
    """Report every `interval` seconds what is waited for, in a thread, until the block ends."""
    start, has_ended = time.monotonic(), threading.Event()

    def repeat() -> None:
        while not has_ended.wait(interval):
            report(f"waiting for {describe()}, {time.monotonic() - start:.0f} s by now")

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
