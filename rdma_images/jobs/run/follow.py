"""Follow a job until it ends, its time is up, or its user wants to stop."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from rdma_images.core.progress import Progress
from rdma_images.jobs.run.runner import CommandError, Runner, State

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
QUICK, SLOW = 0.5, 5.0  # seconds between two looks, at first and later
AT_FIRST = 10.0  # seconds
UNREACHABLE = 300.0  # seconds without an answer after which nothing more is expected
REMOVAL = 120.0  # seconds in which a removal that fails is tried again


@dataclass(frozen=True)
class Ended:
    """How following a job ended, and why, in the scheduler's words where they are its."""

    how: Literal["succeeded", "failed", "late", "interrupted", "unreachable"]
    why: str = ""


class Stop:
    """Whether the user wants to stop: `number` is the signal that said so."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.number = 0

    def __call__(self, number: int, _: FrameType | None = None) -> None:
        """A signal's handler. Only the first says anything new: the job is then being removed."""
        self.number = self.number or number
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait, and say whether the user wants to stop."""
        return self._event.wait(seconds)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Take Ctrl-C, a lost terminal and an end by kill(1) as a wish to stop in good order."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(runner: Runner, stop: Stop, limit: float, say: Progress) -> Ended:
    """Look at the job until it ends or `limit` seconds are over; every change of its state is said."""
    begun = answered = time.monotonic()
    state, last = State("waiting"), ""
    while True:
        try:
            state = runner.state()
            answered = time.monotonic()
            line = f"{state.phase}{': ' if state.why else ''}{state.why}"
        except CommandError as error:
            line = f"no answer, asking again: {str(error).splitlines()[0]}"
        now = time.monotonic()
        if line != last:
            say(f"{_minutes(now - begun)} {line}")
            last = line
        if state.phase in ("succeeded", "failed"):
            return Ended(state.phase, state.why)
        if now - answered > UNREACHABLE:
            return Ended("unreachable", f"no answer for {_minutes(now - answered)} minutes: {line}")
        if now - begun > limit:
            late = "did not start" if state.phase == "waiting" else "did not end"
            return Ended("late", f"it {late} in {_minutes(limit)} minutes: {state.why or 'nothing says why'}")
        if stop.wait(min(QUICK if now - begun < AT_FIRST else SLOW, max(0.1, begun + limit - now))):
            return Ended("interrupted", f"{signal.Signals(stop.number).name} while it was {state.phase}")


def remove(runner: Runner, say: Progress) -> None:
    """Remove what the runner submitted, more than once where that fails. Raises CommandError where it never worked."""
    until = time.monotonic() + REMOVAL
    while True:
        try:
            return runner.delete()
        except CommandError as error:
            if time.monotonic() > until:
                raise
            say(f"the job could not be removed, trying again: {str(error).splitlines()[0]}")
            time.sleep(SLOW)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
