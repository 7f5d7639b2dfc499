"""A limit on the processor time of a block, which no load of the machine moves."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def processor_limit(seconds: float) -> Iterator[None]:
    """Fail where the block takes more than `seconds` of processor time."""

    def fail(*_: object) -> None:
        raise AssertionError(f"took more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
