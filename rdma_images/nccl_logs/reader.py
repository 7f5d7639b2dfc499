"""Read the logs of a job: channels, providers, devices, and the lines that say why the fabric is not used."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Counter as CounterOf
from typing import Iterable

from rdma_images.nccl_logs.lines import LineClass, LineClasses, printable_texts
from rdma_images.nccl_logs.log_patterns import LogPattern, LogPatterns
from rdma_images.nccl_logs.processes import MAX_VALUES, VALUES, Process, Processes
from rdma_images.nccl_logs.quotes import TRACEBACK, FirstTraceback, shorten

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
    faults: tuple[str, ...] = ()  # the causes that make any job bad, whatever its channels use
    fatal_fault: str = ""  # the cause that ended the job; of several, the one that explains best
    transfer_fault: str = ""  # the cause that ended the job after NCCL had started
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

    def __init__(self, patterns: LogPatterns) -> None:
        """Take what lines mean."""
        self._patterns = patterns
        rows = (*patterns.causes.values(), *patterns.notes.values())
        self._classes = LineClasses(rows, MARKS)
        self._lines: dict[LogPattern, dict[str, str]] = {row: {} for row in rows}  # and the place of each
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
        kinds = self._classes.of_lines(text)
        if not self._traceback.is_open and not any(kind.is_relevant or kind.is_nccl for kind in set(kinds)):
            return
        for offset, (line, kind) in enumerate(zip(text.split("\n"), kinds)):
            if kind.is_relevant or self._traceback.is_open:
                self._number = number + offset
                self._read_line(line, kind)
            elif kind.is_nccl and not self._has_nccl_lines:
                self._has_nccl_lines = MESSAGE.search(line) is not None

    def _read_line(self, line: str, kind: LineClass) -> None:
        if kind.is_raw:
            for part in printable_texts(line):
                self._read_part(part, self._classes.of_lines(part)[0])
        else:
            self._read_part(line, kind)

    def _read_part(self, part: str, kind: LineClass) -> None:
        """Read a line without control characters, out of what wrapped it."""
        prefix, *messages = MESSAGE.split(part, MAX_MESSAGES) if kind.is_nccl else (part,)
        if not messages:
            self._traceback.read(part)
            self._record_version(part)
            self._record_meanings((row for row in kind.patterns if row.in_any_line), part)
            return
        self._has_nccl_lines = True
        if WARNING in part and not self._first_warning:
            self._record_warning(part)
        for message in messages:
            self._read_message(prefix[-MAX_PREFIX_LENGTH:], message[:MAX_MESSAGE_LENGTH], kind)
            prefix = message

    def _read_message(self, prefix: str, message: str, kind: LineClass) -> None:
        """Read a message of NCCL's; `prefix` is what stands before it."""
        process = self._processes.find(prefix)
        if channel := CHANNEL.match(message):
            self._record_channel(process, channel)
        else:
            self._processes.record(process, message, self._place)
            self._record_meanings(kind.patterns, message)
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

    def _record_meanings(self, rows: Iterable[LogPattern], line: str) -> None:
        """Record the line for each of these patterns that it matches."""
        line = line[:MAX_MESSAGE_LENGTH]
        for row in rows:
            lines = self._lines[row]
            if line not in lines and len(lines) < MAX_LINES and row.meaning(line):
                lines[line] = self._place

    def _record_warning(self, line: str) -> None:
        """Record NCCL's first warning that no row explains."""
        words = line[line.index(WARNING) + len(WARNING) :].strip()[:MAX_MESSAGE_LENGTH]
        if not any(row.meaning(words) for row in self._patterns.causes.values()):
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
        summary.faults = self._meanings([row for row in causes if row.is_fatal or row.slows_job], summary)
        fatal_causes = [row for row in causes if row.is_fatal]
        summary.fatal_fault = self._best_meaning(fatal_causes, summary)
        summary.transfer_fault = self._best_meaning([row for row in fatal_causes if row.after_start], summary)
        summary.notes = self._meanings(self._patterns.notes.values(), summary)
        return summary

    def _causes(self, version: str | None) -> list[LogPattern]:
        """Return the causes that the lines show, except those that another shown cause supersedes."""
        shown = {name: row for name, row in self._patterns.causes.items() if self._is_shown(row, version)}
        replaced = {name for row in shown.values() for name in row.supersedes}
        return [row for name, row in shown.items() if name not in replaced]

    def _is_shown(self, row: LogPattern, version: str | None) -> bool:
        return bool(self._lines[row]) and row.fits(version) and row.requires_line in {"", *self._found}

    def _best_meaning(self, rows: list[LogPattern], summary: LogSummary) -> str:
        """Return the first meaning of the last row, which explains best; "" for no row."""
        return next(iter(self._meanings(rows[-1:], summary)), "")

    def _meanings(self, rows: Iterable[LogPattern], summary: LogSummary) -> tuple[str, ...]:
        """Return the lines' meanings in the order of the table: later rows explain earlier ones."""
        places: dict[str, list[str]] = {}
        for row in rows:
            if self._is_shown(row, summary.nccl):
                for line, place in self._lines[row].items():
                    if meaning := row.meaning(line):
                        places.setdefault(meaning, []).append(place)
        summary.places.update({meaning: tuple(found[:MAX_PLACES]) for meaning, found in places.items()})
        return tuple(places)
