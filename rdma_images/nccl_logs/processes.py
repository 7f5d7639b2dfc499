"""What each process of a job says of its network, by the host and process id before NCCL's lines."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Counter as CounterOf
from typing import Iterator, Tuple

Channel = Tuple[str, str, bool]  # network, device, GPUDirect

MAX_PROCESSES = 20_000  # processes, or different prefixes of lines
MAX_VALUES = 1000  # different channels or values of a process: no job of NCCL's has as many

SENDER = re.compile(r"(?<![\w.-])([\w.-]{1,255}):(\d{1,10}):\d{1,10} \[-?\d+\][^\[\]]*$")
RANK = re.compile(r"(?: rank (\d{1,6}))? n[rR]anks (\d{1,6})\b(?: nNodes (\d{1,6})\b)?")
DEVICES = re.compile(r"NET/IB ?: (?:Using |(?=\[\d))(?P<devices>[^;\n]*)")
# In braces where NCCL merged several into one.
DEVICE = re.compile(r"\[\d+\] ?(\{[^}]{0,300}\}|[\w.-]{1,100}):\d+/")
# The plain text that a value follows, the value's name, and an expression that begins with that text.
VALUES = (
    ("NCCL version ", "nccl", re.compile(r"NCCL version (\d[\w.+-]*)")),
    ("NET/OFI Initializing ", "plugin", re.compile(r"NET/OFI Initializing aws-ofi-nccl (\d[\w.-]*)")),
    ("NET/OFI Using aws-ofi-nccl ", "plugin", re.compile(r"NET/OFI Using aws-ofi-nccl (\d[\w.-]*)")),
    ("NET/OFI Using Libfabric ", "libfabric", re.compile(r"NET/OFI Using Libfabric version (\d[\w.]*)")),
    ("NET/OFI Selected ", "provider", re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;-]+)")),
    ("NET/OFI Selected ", "adapters", re.compile(r"NET/OFI Selected [^(]*\(found (\d{1,4}) nics\)")),
    ("NET/IB", "adapters", re.compile(r"NET/IB ?: No device found()")),
    ("Using network ", "network", re.compile(r"Using network (.+)")),
    ("Using internal Network ", "network", re.compile(r"Using internal Network (.+)")),
    ("NCCL_HOSTID ", "hostid", re.compile(r"NCCL_HOSTID set by environment to ([\w.-]{1,255})")),
)


@dataclass
class Process:
    """One process; each place is the "file:line" where it was read first."""

    host: str
    communicators: dict[int, dict[int, str]] = field(default_factory=dict)  # ranks of it -> own rank -> place
    channels: CounterOf[Channel] = field(default_factory=Counter)  # over a network
    places: dict[Channel, str] = field(default_factory=dict)  # of the first such channel
    devices: tuple[str, ...] = ()  # of libibverbs
    values: dict[str, dict[str, str]] = field(default_factory=dict)  # name of VALUES -> value -> place

    def record_value(self, name: str, value: str, place: str) -> None:
        """Record a value, unless it is known."""
        values = self.values.setdefault(name, {})
        if len(values) < MAX_VALUES:
            values.setdefault(value, place)


class Processes:
    """The processes of a job, and the size of the job that they name."""

    def __init__(self) -> None:
        self.ranks = 0  # of the largest communicator
        self.nodes: dict[int, int] = {}  # by the ranks of the communicator
        self.by_host_and_pid: dict[tuple[str, str], Process] = {}
        self._by_prefix: dict[str, Process] = {}
        self._nameless = Process("")  # of lines whose beginning was cut

    def find(self, prefix: str) -> Process:
        """Return the process that the beginning of a line names."""
        process = self._by_prefix.get(prefix)
        if process is None:
            if len(self._by_prefix) > MAX_PROCESSES:  # each line has its own, with a time in it
                self._by_prefix.clear()
            process = self._by_prefix[prefix] = self._named(prefix)
        return process

    def _named(self, prefix: str) -> Process:
        match = SENDER.search(prefix)
        if not match:
            return self._nameless
        key = match[1], match[2]
        if key not in self.by_host_and_pid and len(self.by_host_and_pid) >= MAX_PROCESSES:
            return self._nameless
        return self.by_host_and_pid.setdefault(key, Process(match[1]))

    def __iter__(self) -> Iterator[Process]:
        """Yield all processes, also the one of lines that name none."""
        yield from self.by_host_and_pid.values()
        yield self._nameless

    def record(self, process: Process, message: str, place: str) -> None:
        """Record what a message of NCCL's says of its process and the job, channels aside."""
        message = message.rstrip()
        for mark, name, pattern in VALUES:
            start = message.find(mark)
            if start >= 0 and (match := pattern.match(message, start)):
                process.record_value(name, match[1] or "0", place)
        start = message.find("NET/IB")
        if start >= 0 and (devices := DEVICES.match(message, start)):
            names = tuple(DEVICE.findall(devices["devices"]))
            process.devices = tuple(dict.fromkeys((*process.devices, *names)))[:MAX_VALUES]
            if names:
                process.record_value("adapters", str(len(names)), place)
        if "anks " in message and (match := RANK.search(message)):
            self._record_rank(process, match, place)

    def _record_rank(self, process: Process, match: re.Match[str], place: str) -> None:
        ranks = int(match[2])
        self.ranks = max(self.ranks, ranks)
        if match[3]:
            self.nodes[ranks] = max(self.nodes.get(ranks, 0), int(match[3]))
        communicator = process.communicators.setdefault(ranks, {})
        if match[1] and len(communicator) < MAX_VALUES:
            communicator.setdefault(int(match[1]), place)

    def job_ranks(self, process: Process) -> dict[int, str]:
        """Return a process' ranks in the job's largest communicator, by their places."""
        return process.communicators.get(self.ranks, {})

    def logged_ranks(self) -> set[int]:
        """Return the ranks of the largest communicator that have lines."""
        return {rank for process in self for rank in self.job_ranks(process)}

    def values(self, name: str) -> set[str]:
        """Return what the processes say of a value."""
        return {value for process in self for value in process.values.get(name, ())}

    def first_value(self, name: str) -> str | None:
        """Return what the first process that names a value says."""
        return next((value for process in self for value in process.values.get(name, ())), None)
