"""Read the logs of a job: channels, providers, devices, and the lines that say why the fabric is not used."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Counter as CounterOf
from typing import Iterable

from rdma_images.nccl_logs.lines import LineShape, LineShapes, printable_parts
from rdma_images.nccl_logs.processes import MAX_VALUES, VALUES, Process, Processes
from rdma_images.nccl_logs.quotes import TRACEBACK, FirstTraceback, shorten
from rdma_images.nccl_logs.wordings import Wording, Wordings

MESSAGE = re.compile(r"NCCL (?<!\wNCCL )(?:INFO|WARN|ATTN|ERROR|TRACE) ")
MAX_MESSAGE_LENGTH = 2048  # characters of a message that are looked into: NCCL's own are shorter
MAX_MESSAGES = 1000  # of a line: as many ranks may write one together
MAX_PREFIX_LENGTH = 400  # characters before a message
MAX_LINES = 1000  # different lines of one meaning that are looked into
MAX_PLACES = 3  # places that are kept of one meaning

# The device ends the network's name: without one the line was cut, and so may the name be. "(3)" is the rank that sends
# in this one's stead.
CHANNEL = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? : (?P<sender>\d{1,6})(?:\[\w+\])? -> (?P<receiver>\d{1,6})(?:\[\w+\])? "
    r"(?:\[\w+\] )?via (?:NET/(?P<network>[^/]{0,100})(?P<complete>/(?P<device>\d{1,4})(?:\(\d+\))?(?P<gdr>/GDRDMA)?)?"
    r"|(?P<inside>(?:P2P|SHM)(?:/\w+)?|direct shared memory))"
)
WARNING = "NCCL WARN "
MARKS = (*(mark for mark, _, _ in VALUES), "NET/IB", "anks ", WARNING, TRACEBACK)


@dataclass
class LogSummary:
    """The statements of all lines that were read."""

    processes: Processes
    channels: CounterOf[str]  # "NET/Libfabric/GDRDMA", "P2P/CUMEM"
    networks: set[str]  # of the channels, a name that was cut with "…"
    senders: set[int]  # the ranks whose own channels inside a node are there
    receivers: set[int]
    has_nccl_lines: bool
    causes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()  # those of the causes that leave no job good, whatever its channels use
    fatal_fault: str = ""  # that one of them that no job gets over, the nearest to the cause
    transfer_fault: str = ""  # that one of them that ends a job in which NCCL has started
    notes: tuple[str, ...] = ()
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of a cause or note: the first lines that say it
    first_warning: str = ""  # of NCCL that no row knows
    traceback: str = ""  # the last line of the first one

    @property
    def nccl(self) -> str | None:
        """Return NCCL's version, without CUDA's."""
        version = self.processes.first_value("nccl")
        return version.partition("+")[0] if version else None


class LogReader:
    """Read the logs of a job piece by piece; holds what they say and not their lines."""

    def __init__(self, wordings: Wordings) -> None:
        """Take what lines mean."""
        self._wordings = wordings
        rows = (*wordings.causes.values(), *wordings.notes.values())
        self._shapes = LineShapes(rows, MARKS)
        self._lines: dict[Wording, dict[str, str]] = {row: {} for row in rows}  # and the place of each
        self._required = {row.requires_line: re.compile(row.requires_line) for row in rows if row.requires_line}
        self._found: set[str] = set()  # of the required lines
        self._processes = Processes()
        self._channels: CounterOf[str] = Counter()
        self._networks: set[str] = set()
        self._senders: set[int] = set()
        self._receivers: set[int] = set()
        self._has_nccl_lines = False
        self._first_warning = ""
        self._traceback = FirstTraceback()
        self._log, self._number = "", 0  # the line that is being read

    def read(self, text: str, log: str = "", number: int = 1) -> None:
        """Read whole lines of a log; its name and the number of the first line say where they are."""
        self._log = log
        shapes = self._shapes.of_lines(text)
        if not self._traceback.is_open and not any(shape.matters or shape.is_nccl for shape in set(shapes)):
            return
        for offset, (line, shape) in enumerate(zip(text.split("\n"), shapes)):
            if shape.matters or self._traceback.is_open:
                self._number = number + offset
                self._read_line(line, shape)
            elif shape.is_nccl and not self._has_nccl_lines:
                self._has_nccl_lines = MESSAGE.search(line) is not None

    def _read_line(self, line: str, shape: LineShape) -> None:
        if shape.is_raw:
            for part in printable_parts(line):
                self._read_part(part, self._shapes.of_lines(part)[0])
        else:
            self._read_part(line, shape)

    def _read_part(self, part: str, shape: LineShape) -> None:
        """Read a line without control characters, out of what wrapped it."""
        prefix, *messages = MESSAGE.split(part, MAX_MESSAGES) if shape.is_nccl else (part,)
        if not messages:
            self._traceback.read(part)
            self._record_version(part)
            self._record_meanings((row for row in shape.wordings if row.anywhere), part)
            return
        self._has_nccl_lines = True
        if WARNING in part and not self._first_warning:
            self._record_warning(part)
        for message in messages:
            self._read_message(prefix[-MAX_PREFIX_LENGTH:], message[:MAX_MESSAGE_LENGTH], shape)
            prefix = message

    def _read_message(self, prefix: str, message: str, shape: LineShape) -> None:
        """Read a message of NCCL's; `prefix` is what stands before it."""
        process = self._processes.find(prefix)
        if channel := CHANNEL.match(message):
            self._record_channel(process, channel)
        else:
            self._processes.record(process, message, self._place)
            self._record_meanings(shape.wordings, message)
            self._found.update(name for name, pattern in self._required.items() if pattern.search(message))

    @property
    def _place(self) -> str:
        return f"{self._log}:{self._number}"

    def _record_channel(self, process: Process, channel: re.Match[str]) -> None:
        if inside := channel["inside"]:
            self._channels[inside] += 1
            self._senders.add(int(channel["sender"]))
            self._receivers.add(int(channel["receiver"]))
        elif not channel["complete"]:
            self._add_network(f"{(channel['network'] or '').strip()}…")
        else:
            name = channel["network"].strip()
            self._add_network(name)
            self._channels[f"NET/{name}{channel['gdr'] or ''}"] += 1
            key = name, channel["device"], channel["gdr"] is not None
            if key not in process.places and len(process.places) < MAX_VALUES:
                process.places[key] = self._place
            if key in process.places:
                process.channels[key] += 1

    def _add_network(self, name: str) -> None:
        if len(self._networks) < MAX_VALUES:
            self._networks.add(name)

    def _record_version(self, line: str) -> None:
        """Record the version that NCCL also writes without its name before the line."""
        if "NCCL version " in line:
            self._processes.record(self._processes.find(""), line[:MAX_MESSAGE_LENGTH], self._place)

    def _record_meanings(self, rows: Iterable[Wording], line: str) -> None:
        """Record the line for each of the wordings that it may have."""
        line = line[:MAX_MESSAGE_LENGTH]
        for row in rows:
            lines = self._lines[row]
            if line not in lines and len(lines) < MAX_LINES and row.meaning(line):
                lines[line] = self._place

    def _record_warning(self, line: str) -> None:
        """Record NCCL's first warning that no row explains."""
        words = line[line.index(WARNING) + len(WARNING) :].strip()[:MAX_MESSAGE_LENGTH]
        if not any(row.meaning(words) for row in self._wordings.causes.values()):
            self._first_warning = shorten(words)

    def summary(self) -> LogSummary:
        """Return what all lines read so far say together."""
        # A name that was cut says nothing new where it begins one that was not.
        complete = {name for name in self._networks if not name.endswith("…")}
        cut = {name for name in self._networks - complete if not any(other.startswith(name[:-1]) for other in complete)}
        summary = LogSummary(
            self._processes,
            Counter(self._channels),
            complete | cut,
            self._senders,
            self._receivers,
            self._has_nccl_lines,
            first_warning=self._first_warning,
            traceback=self._traceback.last_line,
        )
        causes = self._causes(summary.nccl)
        summary.causes = self._meanings(causes, summary)
        summary.faults = self._meanings([row for row in causes if row.stops or row.degrades], summary)
        summary.fatal_fault = self._nearest([row for row in causes if row.stops], summary)
        summary.transfer_fault = self._nearest([row for row in causes if row.stops and row.started], summary)
        summary.notes = self._meanings(self._wordings.notes.values(), summary)
        return summary

    def _causes(self, version: str | None) -> list[Wording]:
        """Return the causes that the lines show, without those that say nothing beside another."""
        shown = {name: row for name, row in self._wordings.causes.items() if self._is_shown(row, version)}
        replaced = {name for row in shown.values() for name in row.instead_of}
        return [row for name, row in shown.items() if name not in replaced]

    def _is_shown(self, row: Wording, version: str | None) -> bool:
        has_required = not row.requires_line or row.requires_line in self._found
        return bool(self._lines[row]) and row.fits(version) and has_required

    def _nearest(self, rows: list[Wording], summary: LogSummary) -> str:
        """Return the first meaning of the last row, which explains best; "" for no row."""
        return next(iter(self._meanings(rows[-1:], summary)), "")

    def _meanings(self, rows: Iterable[Wording], summary: LogSummary) -> tuple[str, ...]:
        """Return the lines' meanings in the order of the table: later rows explain earlier ones."""
        places: dict[str, list[str]] = {}
        for row in rows:
            if self._is_shown(row, summary.nccl):
                for line, place in self._lines[row].items():
                    if meaning := row.meaning(line):
                        places.setdefault(meaning, []).append(place)
        summary.places.update({meaning: tuple(found[:MAX_PLACES]) for meaning, found in places.items()})
        return tuple(places)
