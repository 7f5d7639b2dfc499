"""Background processes that outlive their starter, recorded so that others find them."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rdma_images.core import atomic


@dataclass(frozen=True)
class Process:
    """A process, told apart from later ones of its pid by its start in clock ticks."""

    pid: int
    started: int

    def is_running(self) -> bool:
        """Return whether this very process runs (a zombie does not)."""
        return start_ticks(self.pid) == self.started


def start_ticks(pid: int) -> int | None:
    """Return the start of a running `pid` in clock ticks since boot, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc_pid_stat(5): the start is field 22. The name, field 2, is in brackets and may hold brackets and blanks, too.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def start(argv: Sequence[str], log: Path, env: Mapping[str, str], record: Path) -> Process:
    """Start `argv` in its own session, logging to `log`; return it, noted in `record`."""
    with log.open("ab") as log_file:
        child = subprocess.Popen(  # it outlives us: nobody waits for it here
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            cwd="/",
            env=dict(env),
            umask=0o022,
            start_new_session=True,
        )
    process = Process(child.pid, start_ticks(child.pid) or 0)
    atomic.write(record, json.dumps(asdict(process)))
    return process


def recorded(record: Path) -> Process | None:
    """Return the process of `record`; None where it does not run any more."""
    try:
        process = Process(**json.loads(record.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return process if process.is_running() else None


def processes_below(folder: Path) -> Iterator[Process]:
    """Yield every process whose program is a file in `folder`, whoever started it."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            program = (entry / "exe").readlink()
            # The path alone may be another's: a process outside of our root (a chroot, a container) shows its own.
            is_below = program.is_relative_to(folder) and program.samefile(entry / "exe")
        except OSError:
            continue
        born = start_ticks(int(entry.name))
        if is_below and born is not None:
            yield Process(int(entry.name), born)


def children(parent: Process) -> list[Process]:
    """Return the processes that `parent` started itself and that still run."""
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent.pid and fields[0] not in "ZX":
            processes.append(Process(int(entry.name), int(fields[19])))
    return processes


def terminate(process: Process, seconds: float) -> None:
    """Ask `process` to end, and kill it when it has not after `seconds`."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        if not process.is_running():
            return
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while process.is_running() and time.monotonic() < deadline:
            time.sleep(0.05)
