"""Repeat work in a thread while a block runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(work: Callable[[], float], first: float) -> Iterator[None]:
    """Call `work` in a thread until the block ends: after `first` seconds, then after as many as it returns.

    The end of the block waits for a call that has begun. An exception of `work` ends the calls.
    """
    over = threading.Event()

    def keep() -> None:
        wait = first
        while not over.wait(wait):
            wait = work()

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
