"""Read what each process of a job says of its network, by the host and process id before NCCL's lines."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rdma_images.facts.nccl_logs import Wording
from rdma_images.jobs.results.result import SourcedValue
from rdma_images.nccl_logs import parser

Channel = tuple[str, str, bool]  # network, device, GPUDirect

# Of the messages that are looked into.
PROCESS_MARKS = (
    " rank ",
    "NET/OFI Initializing ",
    "NET/OFI Using ",
    "NET/OFI Selected ",
    "NET/IB",
    "NCCL version",
    "NCCL_HOSTID",
)
MAX_CHANNELS = 1000  # different channels of a process
EXAMPLES = 3  # lines that are named for one wording
MAX_PROCESSES = 20_000  # processes, or different prefixes of lines

SENDER = re.compile(r"(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,10}):\d{1,10} \[-?\d+\]")
RANK = re.compile(r" rank (\d{1,6}) n[rR]anks (\d{1,6})\b(?: nNodes (\d{1,6}))?")
HOSTID = re.compile(r"NCCL_HOSTID set by environment to ([\w.-]{1,255})")
NCCL = re.compile(r"NCCL version (\d[\w.+-]*)")
PLUGIN = re.compile(r"NET/OFI (?:Initializing|Using) aws-ofi-nccl (\d[\w.-]*)")
LIBFABRIC = re.compile(r"NET/OFI Using Libfabric version (\d[\w.]*)")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;-]+)(?:.*\(found (\d{1,4}) nics\))?")
MTU = re.compile(r"NET/IB ?: .*\bmtu (\d{1,5})\b")
CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : .* via NET/([^/]{1,100})/(\d{1,4})(?:\(\d+\))?(/GDRDMA)?")
DEVICE = re.compile(r"\[\d+\] ?(\{[^}]*\}|[\w.-]+):\d+/")


@dataclass
class RankProcess:
    """One process. Of a value that it logs more than once the first counts, with its line."""

    host: str
    communicators: dict[int, dict[int, str]] = field(default_factory=dict)  # ranks of it -> own rank -> where
    channels: Counter[Channel] = field(default_factory=Counter)  # network, device, GPUDirect
    first_lines: dict[Channel, str] = field(default_factory=dict)  # of the first such channel
    devices: tuple[str, ...] = ()  # of libibverbs
    hostid: str = ""
    values: dict[str, SourcedValue] = field(default_factory=dict)  # "nccl", "plugin", "provider", "adapters", …

    def record_value(self, name: str, value: str, where: str) -> None:
        """Record a value, unless one of this name is there."""
        self.values.setdefault(name, SourcedValue(value, where))

    def count_channel(self, key: Channel, where: str, times: int = 1) -> None:
        """Count channels over a network; `where` is the line of the first."""
        if key in self.channels or len(self.channels) < MAX_CHANNELS:
            self.channels[key] += times
            self.first_lines.setdefault(key, where)


class Processes:
    """The processes of a job, and the size of the job that they name."""

    def __init__(self) -> None:
        self.ranks = self.nodes = 0  # of the largest communicator
        self.by_host_and_pid: dict[tuple[str, str], RankProcess] = {}
        self.evidence: dict[str, list[str]] = {}  # a meaning -> the first lines that have it
        self._prefixes: dict[str, RankProcess | None] = {}

    def process_of_line(self, prefix: str) -> RankProcess | None:
        """Return the process that the beginning of a line names; None for none."""
        if prefix in self._prefixes:
            return self._prefixes[prefix]
        if len(self._prefixes) > MAX_PROCESSES:  # each line has its own, with a time in it
            self._prefixes.clear()
        match = SENDER.search(prefix)
        process = self.by_host_and_pid.get((match["host"], match["pid"])) if match else None
        if match and not process and len(self.by_host_and_pid) < MAX_PROCESSES:
            process = self.by_host_and_pid[match["host"], match["pid"]] = RankProcess(match["host"])
        self._prefixes[prefix] = process
        return process

    def job_ranks(self, process: RankProcess) -> dict[int, str]:
        """Return a process' ranks in the job's largest communicator, by their lines."""
        return process.communicators.get(self.ranks, {})

    def record_meanings(self, rows: Iterable[Wording], line: str, where: str) -> None:
        """Record which of the wordings the line has."""
        for row in rows:
            self._record_evidence(row.meaning(line), where)

    def _record_evidence(self, meaning: str | None, where: str) -> None:
        """Record the first lines of a meaning."""
        if meaning and (meaning in self.evidence or len(self.evidence) < MAX_CHANNELS):
            lines = self.evidence.setdefault(meaning, [])
            if len(lines) < EXAMPLES and where not in lines:
                lines.append(where)

    def record_message(self, process: RankProcess | None, message: str, where: str) -> None:
        """Record what another line of NCCL's says."""
        if process is None:
            return
        if match := CHANNEL.match(message):
            process.count_channel((match[1], match[2], match[3] is not None), where)
        elif match := RANK.search(message):
            communicator = process.communicators.setdefault(int(match[2]), {})
            if len(communicator) < MAX_CHANNELS:
                communicator.setdefault(int(match[1]), where)
            self.ranks = max(self.ranks, int(match[2]))
            self.nodes = max(self.nodes, int(match[3] or 0))
        for name, value in _values(message):
            process.record_value(name, value, where)
        if match := HOSTID.search(message):
            process.hostid = match[1]
        if (match := parser.DEVICES.search(message)) and not process.devices:
            process.devices = tuple(DEVICE.findall(match["devices"]))
            process.record_value("adapters", str(len(process.devices)), where)


def _values(message: str) -> Iterator[tuple[str, str]]:
    """Yield the values in the message, by name."""
    for name, pattern in (("nccl", NCCL), ("plugin", PLUGIN), ("libfabric", LIBFABRIC), ("mtu", MTU)):
        if match := pattern.search(message):
            yield name, match[1]
    if match := PROVIDER.search(message):
        yield "provider", match[1]
        if match[2]:
            yield "adapters", match[2]
