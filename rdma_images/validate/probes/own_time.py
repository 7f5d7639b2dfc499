"""The time that a process takes by itself, whatever else the machine does."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

WORKING = "RD"  # states of proc(5): on a processor or waiting for one, or waiting for a disk
TICKS = os.sysconf("SC_CLK_TCK")  # of processor time, in a second


class _Process(NamedTuple):
    parent: int
    state: str
    ticks: int  # of processor time, with that of its ended children


class OwnTime:
    """The seconds that a process and its children have computed or slept.

    Waits for a processor or a disk do not count; on a busy machine they are most of the time. So a limit ends a process
    that computes or sleeps for too long, and not one that other processes hold up.
    """

    def __init__(self, pid: int) -> None:
        """Begin to count for the process `pid`, which has just begun."""
        self.pid, self.total = pid, 0.0
        self._then, self._ticks, self._asleep = time.monotonic(), 0, False

    def seconds(self) -> float:
        """Return the seconds until now, never more than have passed; to be asked about once a second."""
        now = time.monotonic()
        elapsed, self._then = now - self._then, now
        family = _family(self.pid)
        if not family:  # it has ended, or there is no /proc
            self.total += elapsed
            return self.total
        ticks = max(self._ticks, sum(process.ticks for process in family))
        asleep = not any(process.state in WORKING for process in family)
        computed = min(elapsed, (ticks - self._ticks) / TICKS)  # several at once are no longer than one
        self.total += elapsed if asleep and self._asleep else computed
        self._ticks, self._asleep = ticks, asleep
        return self.total

    def is_over(self, limit: float) -> bool:
        """Return whether they have taken `limit` seconds; looked at once a second, however often it is asked."""
        if time.monotonic() - self._then < min(1.0, limit):
            return self.total >= limit
        return self.seconds() >= limit


def _family(pid: int) -> list[_Process]:
    """Return a process and all that descend from it; empty where it is not there."""
    processes: dict[int, _Process] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and (process := _read(name)):
            processes[int(name)] = process
    members = {pid} & processes.keys()
    while more := {key for key, process in processes.items() if process.parent in members} - members:
        members |= more
    return [processes[key] for key in members]


def _read(name: str) -> _Process | None:
    try:
        with open("/proc/%s/stat" % name, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Process(int(fields[1]), fields[0].decode(), sum(map(int, fields[11:15])))
