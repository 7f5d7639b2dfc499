"""Follow a job until it ends, its time is up, or its user stops it."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from rdma_images.core.durations import format_minutes
from rdma_images.core.errors import first_line
from rdma_images.core.progress import Progress
from rdma_images.jobs.run.command import CommandError
from rdma_images.jobs.run.runner import JobState, Runner
from rdma_images.jobs.run.watch import LogWatch

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
QUICK_POLL_SECONDS, SLOW_POLL_SECONDS = 0.5, 5.0  # between two looks, at first and later
QUICK_PERIOD_SECONDS = 10.0  # from the start in which looks are quick
UNREACHABLE_SECONDS = 300.0  # without an answer after which nothing more is expected


@dataclass(frozen=True)
class JobOutcome:
    """The outcome of a job, and its reason, in the scheduler's words where it gives one."""

    ending: Literal["succeeded", "failed", "late", "interrupted", "unreachable"]
    why: str = ""


class StopRequest:
    """The user's request to stop: `number` is the signal that made it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.number = 0

    def __call__(self, number: int, _: FrameType | None = None) -> None:
        """Handle a signal. Only the first counts: the job is then being removed."""
        self.number = self.number or number
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait, and return whether the user wants to stop."""
        return self._event.wait(seconds)


@contextmanager
def handle_stop_signals() -> Iterator[StopRequest]:
    """Take Ctrl-C, a lost terminal and an end by kill(1) as a request to stop in good order."""
    stop = StopRequest()
    previous = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def follow(
    runner: Runner, stop: StopRequest, limit: float, progress: Progress, logs: LogWatch, is_restarted: bool = False
) -> JobOutcome:
    """Watch a job to its end or for `limit` seconds, report its states, return the outcome.

    It has failed, too, once a line is in `logs` after which no job goes on, unless it `is_restarted` by its launcher.
    """
    start_time = last_answer = time.monotonic()
    state, last_message = JobState("waiting"), ""
    while True:
        try:
            state = read_state(runner)
            last_answer = time.monotonic()
            line = f"{state.phase}{': ' if state.why else ''}{state.why}"
        except CommandError as error:
            line = f"no answer, asking again: {first_line(error)}"
        now = time.monotonic()
        if line != last_message:
            progress(f"{format_minutes(now - start_time)} {line}")
            last_message = line
        if state.phase in ("succeeded", "failed"):
            return JobOutcome(state.phase, state.why)
        if logs.look() and not is_restarted:
            return JobOutcome("failed", logs.sentence)
        if now - last_answer > UNREACHABLE_SECONDS:
            return JobOutcome("unreachable", f"no answer for {format_minutes(now - last_answer)}: {line}")
        if now - start_time > limit:
            late = "did not start" if state.phase == "waiting" else "did not end"
            return JobOutcome("late", f"it {late} in {format_minutes(limit)}: {state.why or 'nothing says why'}")
        poll_seconds = QUICK_POLL_SECONDS if now - start_time < QUICK_PERIOD_SECONDS else SLOW_POLL_SECONDS
        if stop.wait(min(poll_seconds, max(0.1, start_time + limit - now))):
            return JobOutcome("interrupted", f"{signal.Signals(stop.number).name} while it was {state.phase}")


def read_state(runner: Runner) -> JobState:
    """Return the state of a job. Raises CommandError for an answer that is not whole."""
    try:
        return runner.state()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CommandError(
            f"the scheduler answered in another form: {type(error).__name__} {error}\nask it by hand what it says"
        ) from None
