"""Run the job's command as a child: its signals and its exit code are passed on."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from rdma_images.preflight.system import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)
LOOK_SECONDS = 0.5  # between two looks at the command and its log
END_SECONDS = 10.0  # for a command to end after SIGTERM
PR_SET_PDEATHSIG = 1  # prctl(2)


def run_command(command: Sequence[str], variables: dict[str, str], look: Callable[[], bool]) -> int | None:
    """Run a command until it ends.

    Args:
        command: Its words.
        variables: Its environment.
        look: Called again and again while it runs; True to end it.

    Returns:
        Its exit code, 128 + n after signal n; None where `look` ended it.

    Raises:
        OSError: It cannot be started.
    """
    libc = ctypes.CDLL(None)
    child = subprocess.Popen(command, env=variables, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))

    def pass_on(number: int, _: FrameType | None) -> None:
        # A terminal gives its own signals to both processes.
        if not (number == signal.SIGINT and sys.stdin and sys.stdin.isatty()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    next_look = 0.0
    while True:
        status = reap(child.pid)
        if status is not None:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + LOOK_SECONDS
            if look():
                end_command(child.pid)
                return None
        time.sleep(0.05)


def reap(process: int) -> int | None:
    """Return the wait status of a child that has ended; None for one that runs.

    Takes every process that has ended: as process 1 of a container this one gets those of others.
    """
    ended = -1
    while ended:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == process:
            return status
    return None


def end_command(process: int) -> None:
    """End a command with SIGTERM, and what of it still runs after END_SECONDS with SIGKILL."""
    family = [process, *descendants(process)]
    os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline and reap(process) is None:
        time.sleep(0.1)
    for member in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    children = [int(word) for word in read_file("/proc/%d/task/%d/children" % (process, process)).split()]
    return children + [member for child in children for member in descendants(child)]
