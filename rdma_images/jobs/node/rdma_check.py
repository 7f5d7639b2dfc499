"""End a training whose NCCL does not use RDMA, within 30 seconds and with the reason: one file for Python 3.8.

    import rdma_check

    rdma_check.start()  # before the first use of NCCL
    torch.distributed.init_process_group("nccl")

It sets NCCL_DEBUG=INFO, and a file for NCCL's log where the job names none, and reads the log of its own process in a
thread. Where the ranks of more than one node use TCP, it prints NCCL's lines that may say why and ends the process with
exit code 1; the launcher then ends the others. Where an exception ends the training later, it prints NCCL's first
warning. What lines mean is in facts/nccl-logs.yaml: `invoke verdict` reads the log that is left.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import threading
import time
from types import TracebackType

WATCH_SECONDS = 30.0  # after NCCL's first line
MAX_QUOTED = 3  # lines of NCCL's
MESSAGE = re.compile(r"NCCL (INFO|WARN) (.*)")
SOCKET_CHANNEL = re.compile(r"Channel .* via NET/(Socket|FastSocket)/")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?!efa)([\w;-]+)")
SOCKETS = re.compile(r"Using network (?:Socket|FastSocket)\b")
NODES = re.compile(r" nNodes (\d+)\b")
# In which NCCL or its plugin say what they did not find.
LACKING = re.compile(r"NET/\w.*(?:\b[Nn]o (?:plugin|device|eligible)|[Nn]ot find|not found|[Ff]ailed|[Uu]nable|n't )")


class Log:
    """The state of one process's NCCL, by the lines of its log so far."""

    def __init__(self) -> None:
        self.nodes = 0
        self.sockets = ""  # what shows that TCP is used
        self.lacking: list[str] = []  # the first lines that may say why
        self.warning = ""  # the first of NCCL

    def read_line(self, line: str) -> None:
        """Record what a line says."""
        match = MESSAGE.search(line)
        if not match:
            return
        level, message = match.groups()
        if level == "WARN":
            self.warning = self.warning or message
        if channel := SOCKET_CHANNEL.search(message):
            self.sockets = "the channels use NET/%s" % channel.group(1)
        elif provider := PROVIDER.search(message):
            self.sockets = "libfabric chose %s, not EFA" % provider.group(1)
        elif SOCKETS.search(message):
            self.sockets = self.sockets or "NCCL announced TCP sockets"
        elif LACKING.search(message) and message not in self.lacking and len(self.lacking) < MAX_QUOTED:
            self.lacking.append(message)
        if nodes := NODES.search(message):
            self.nodes = max(self.nodes, int(nodes.group(1)))

    @property
    def reason(self) -> str:
        """Return why the training must end; "" where nothing says so."""
        if self.sockets and (self.nodes > 1 or "channels" in self.sockets):
            return "; ".join([self.sockets, *self.lacking])
        return ""


def _start_log() -> str:
    """Set the variables that make NCCL write a log, and return its path for this process."""
    os.environ["NCCL_DEBUG"] = "INFO"
    os.environ.pop("NCCL_DEBUG_SUBSYS", None)
    pattern = os.environ.get("NCCL_DEBUG_FILE") or tempfile.mkdtemp(prefix="nccl-") + "/%h.%p.log"
    os.environ["NCCL_DEBUG_FILE"] = pattern
    return pattern.replace("%h", socket.gethostname().split(".")[0]).replace("%p", str(os.getpid()))


def _watch_log(path: str, seconds: float) -> None:
    """Read NCCL's log for `seconds` from its start; end the process if it uses TCP."""
    log, offset, unfinished, start = Log(), 0, "", 0.0
    while not start or time.monotonic() < start + seconds:
        time.sleep(0.2)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                file.seek(offset)
                text = file.read()
                offset = file.tell()
        except OSError:
            continue
        *lines, unfinished = (unfinished + text).split("\n")
        start = start or (time.monotonic() if lines else 0.0)
        for line in lines:
            log.read_line(line)
        if log.reason:
            _print_reason(log.reason)
            os._exit(1)


def _print_reason(reason: str) -> None:
    """Print a reason with the rank and the host of this process."""
    rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("SLURM_PROCID", "?")
    print("rdma_check: rank %s on %s: %s" % (rank, socket.gethostname(), reason), file=sys.stderr, flush=True)


def _print_first_warning(path: str) -> None:
    """Print NCCL's first warning, after the exception that ends the training."""
    log = Log()
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                log.read_line(line)
    except OSError:
        return
    if log.warning:
        _print_reason("NCCL's first warning: %s" % log.warning)


def start(seconds: float = WATCH_SECONDS) -> None:
    """Begin to watch this process's NCCL, before its first use. Returns at once."""
    path = _start_log()
    print_exception = sys.excepthook  # the training may have one of its own

    def explain(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        print_exception(kind, error, frames)
        _print_first_warning(path)

    sys.excepthook = explain
    threading.Thread(target=_watch_log, args=(path, seconds), name="rdma_check", daemon=True).start()
