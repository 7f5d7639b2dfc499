"""Run the job's command as a child, whose signals and exit code are passed on, and judge its NCCL's logs."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from rdma_images.nccl_logs.log_patterns import LogPatterns
from rdma_images.nccl_logs.reader import LogReader
from rdma_images.nccl_logs.verdict import judge_summary
from rdma_images.preflight.system import read_file

RELAYED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT]
LOOK_SECONDS = 0.5  # between two looks at the command and its log
END_SECONDS = 10.0  # for a command to end after SIGTERM
PR_SET_PDEATHSIG = 1  # prctl(2)
READ_BYTES = 8 << 20  # bytes of a file that are read in one look


def run_command(command: Sequence[str], variables: dict[str, str], look: Callable[[], bool]) -> int | None:
    """Return the exit code of a command, 128 + n after signal n; None if `look` returned True, which ends it."""
    libc = ctypes.CDLL(None)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, RELAYED)  # until they can be passed on

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def pass_on(number: int, _: FrameType | None) -> None:
        # A terminal gives its own signals to both processes.
        if not (number == signal.SIGINT and sys.stdin and sys.stdin.isatty()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)

    try:
        child = subprocess.Popen(command, env=variables, preexec_fn=prepare)
        for number in RELAYED:
            signal.signal(number, pass_on)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
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
    """Return the wait status of a child that has ended, None for one that runs; reap orphans, as process 1 must."""
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


class NodeLogs:
    """The logs of one node's processes in one folder, which other nodes may share."""

    def __init__(self, folder: str, patterns: LogPatterns, prints_log: bool) -> None:
        """Take the folder ("" for none), what lines mean, and whether each line goes to standard output, too."""
        self.patterns, self.prints_log = patterns, prints_log
        host = socket.gethostname().partition(".")[0]  # %h of NCCL's
        self.pattern = os.path.join(glob.escape(folder), "%s.*.log" % glob.escape(host)) if folder else ""
        self.offsets = {path: os.path.getsize(path) for path in glob.glob(self.pattern)}  # an earlier attempt's lines
        self.reader = LogReader(patterns)
        self.verdict = judge_summary(self.reader.summary(), patterns)

    def read(self) -> bool:
        """Read what is new, up to READ_BYTES and the last whole line of each file; return whether one may have more."""
        is_new = has_more = False
        for path in sorted(glob.glob(self.pattern)):
            with open(path, "rb") as file:
                file.seek(self.offsets.get(path, 0))
                content = file.read(READ_BYTES)
            is_full = len(content) == READ_BYTES
            whole = content[: content.rfind(b"\n") + 1] or (content if is_full else b"")
            if not whole:
                continue
            is_new, has_more = True, has_more or is_full
            self.offsets[path] = self.offsets.get(path, 0) + len(whole)
            text = whole.decode("utf-8", "replace")
            self.reader.read(text, os.path.basename(path))
            if self.prints_log:
                print(text, end="", flush=True)
        if is_new:
            self.verdict = judge_summary(self.reader.summary(), self.patterns)
        return has_more

    def uses_other_network(self, required: str) -> bool:
        """Return whether the channels between nodes use something else than what is required ("": nothing is)."""
        has_network = any(name.startswith("NET/") for name in self.verdict.channels)
        is_judged = has_network and self.verdict.network != "unknown"
        return bool(required) and is_judged and not self.verdict.is_over(required)


def log_variables(folder: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which NCCL writes its log of each process into a folder; "" for none."""
    if not folder:
        return dict(environment)
    variables = dict(environment, NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=os.path.join(folder, "%h.%p.log"))
    subsystems = variables.pop("NCCL_DEBUG_SUBSYS", "")
    if subsystems and not subsystems.startswith("^"):
        variables["NCCL_DEBUG_SUBSYS"] = "INIT,NET," + subsystems  # which write of the channels
    return variables


def find_folder(option: str, environment: Mapping[str, str]) -> str:
    """Return the folder of NCCL's logs: the option's, NCCL_DEBUG_FILE's, or a new one; "" where none can be written."""
    named = option or os.path.dirname(environment.get("NCCL_DEBUG_FILE", ""))
    if named and "%" not in named:
        with contextlib.suppress(OSError):
            os.makedirs(named, exist_ok=True)
        return named if os.access(named, os.W_OK) else ""
    for parent in (environment.get("TMPDIR", ""), "/tmp", "/dev/shm"):
        if os.path.isdir(parent) and os.access(parent, os.W_OK):
            return tempfile.mkdtemp(prefix="nccl-", dir=parent)
    return ""
