"""Find what ended a job by the structure of its log: tracebacks, launchers' blocks, and the lines of other parts.

A line that is quoted is a fact; its kind, by facts/failures.yaml, is inferred. Of the failures in a log the first one
counts that is no effect of another: a traceback or a supervisor's report before other errors, these before signals.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from posixpath import basename

from rdma_images.facts.failures import Failure, Failures
from rdma_images.nccl_logs import error_lines
from rdma_images.nccl_logs.error_lines import EXCEPTION, GUESSES, PROGRAM_EXCEPTION, REASON, STACK, WARNING
from rdma_images.nccl_logs.line_filter import LineClassifier, LineShape, printable_parts
from rdma_images.nccl_logs.tracebacks import (
    FRAME,
    HEADER,
    MAX_MESSAGE_LINES,
    RICH_FRAME,
    Line,
    Match,
    RaisedException,
    Traceback,
    Tracebacks,
)

MAX_LINE_LENGTH = 4096  # characters of a line that are looked into
ROOT_FIELDS = 5  # lines of torchrun's block on the first failure
MAX_ALIKE = 1000  # lines that differ only in numbers, and shapes of lines that are counted
MAX_RANKS = 1000  # ranks of which a hang is remembered
QUIET_LINES = 200  # lines without a failure, after which the next one is another story
MIN_PROGRESS = 3  # lines that tell how far a job is, after which it has got over a failure
NEAR_LINES = 50  # lines between a failure and another line that may say why

# What of a line differs between lines of one stream: the time before them.
TIME = re.compile(
    r"(?:\d{4}[-/])?\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\s?"
)
LIBRARY = re.compile(r"/(?:site|dist)-packages/(?P<name>\w+)")
STANDARD = re.compile(r"/lib/python[\d.]+/(?!(?:site|dist)-packages/)|^<|/bin/[^/]+$|\.pyx$")
RANK_PATTERNS = (
    re.compile(r"\[(?:rank|default|Rank )(\d{1,6})\]"),
    re.compile(r"\[PG [^\]]*Rank (\d{1,6})\]"),
    re.compile(r"\[1,(\d{1,6})\]<std"),
    re.compile(r"\b[Rr]ank[=: ]{1,2}(\d{1,6})\b"),
    re.compile(r"\btask (\d{1,6})(?=:)"),
    re.compile(r"^\s*(\d{1,6}): "),
)
NODE_PATTERNS = (
    re.compile(r"\berror: ([\w.-]+): tasks? \d"),
    re.compile(r"\bSTEP [\w.+]+ ON ([\w.-]+)|\bJOB \d+ ON ([\w.-]+)"),
    re.compile(r"\(\w[^()]*\bip=([\d.]+)[,)]"),
    re.compile(r"^([A-Za-z][\w.-]*):\d+:\d+ \[-?\d+\]"),
    re.compile(r"\[\[([\w.-]+)\]:\d+\] failed"),
    re.compile(r"\[pod/([\w.-]+)/"),
    re.compile(r"Worker IP address: ([\d.]+)"),
    re.compile(r"\bon node (?=\S*[\d-])([A-Za-z][\w.-]*)"),
    re.compile(r"^([A-Za-z][\w-]*-?\d+): (?=\[|Traceback|\s*File|\w+Error)"),
)
# Addresses that mean another machine, or none, on each node.
LOCAL_ADDRESSES = {
    "is link-local": re.compile(r"\b169\.254\.\d+\.\d+"),
    "is of Docker's bridge": re.compile(r"\b172\.17\.\d+\.\d+"),
    "is each node itself": re.compile(r"\b127\.\d+\.\d+\.\d+|\blocalhost\b|\[::1\]"),
}
ROOT_CAUSE = "Root Cause (first observed failure)"
ROOT_FIELD = re.compile(r"\s(?P<name>time|host|rank|exitcode|traceback) *: (?P<value>.+)")
HANG = re.compile(r"\[Rank (?P<rank>\d{1,6})\] Watchdog caught collective operation timeout: \w+\((?P<work>[^)]*)")
WORK = re.compile(r"SeqNum=(?P<number>\d+), OpType=(?P<operation>\w+)")


@dataclass(frozen=True)
class JobFailure:
    """What ended a job, by one line of its log."""

    quote: str
    why: str = ""  # the kind and what to do, inferred; "" where the line alone is known
    layer: str = ""  # the part of the system
    rank: str = ""
    node: str = ""
    network: bool | None = None  # False: it has nothing to do with a network
    where: str = ""  # "file:line"
    has_ended: bool = False  # a line after which no job goes on is in the log
    is_effect: bool = False  # mostly of what ended first, elsewhere
    is_warning: bool = False  # which a job can get over
    is_probable: bool = False  # no program marks the line as an error
    nearby_line: str = ""  # another line that no rule knows, and that may say why

    @property
    def sentence(self) -> str:
        """Return what ended the job, where, and the line that says it, in one line."""
        process = " of ".join(filter(None, (self.rank and f"rank {self.rank}", self.node)))
        network = "not the network" if self.network is False else ""
        places = ", ".join(filter(None, (process and f"on {process}", self.layer and f"in {self.layer}", network)))
        where = f" ({places})" if places else ""
        if not self.why:
            kind = "an exception of the program" if error_lines.RAISED.match(self.quote) else "an error"
            kind = "probably" if self.is_probable else f"{kind}, quoted and not judged"
            return f'{kind}{where}: "{self.quote}"'
        beside = f'; beside it: "{self.nearby_line}"' if self.nearby_line else ""
        return f'{self.why}{where}, inferred from "{self.quote}"{beside}'


@dataclass(frozen=True)
class _Event:
    """A failure that a line or a traceback shows."""

    tier: int
    number: int
    line: Line
    context: str = ""  # another line that may name the rank or node
    files: tuple[tuple[str, str], ...] = ()
    where: str = ""
    log: str = ""  # its name
    time: str = ""  # the last one in this log before it


# Of the tiers the first one counts that an event has.
TRACEBACK, CAUSE, EFFECT, ERROR_LINE, RETRY, PROBABLE = range(6)


class FailureReader:
    """Read the lines of a job that can show a failure; holds the first of each kind."""

    def __init__(self, facts: Failures, classifier: LineClassifier) -> None:
        """`classifier` says of each line which failures it may show."""
        self._facts = facts
        self._classifier = classifier
        self._tracebacks = Tracebacks(self._end_traceback)
        self._events: dict[int, _Event] = {}  # the first of each tier
        self._last_numbers: dict[int, int] = {}  # the number of the last line of each tier
        self._first_traceback_by_rank: dict[str, _Event] = {}  # the first traceback of a rank
        self._root = _RootCause()
        self._hung_ranks: dict[int, str] = {}  # rank -> the collective
        self._endings: dict[int, Failure] = {}  # the rules of lines after which no job goes on
        self._ended_node = ""  # the first that a supervisor names
        self._shape_counts: Counter[LineShape] = Counter()
        self._number = 0
        self._log = self._where = self._time = ""
        self._progress: dict[str, deque[int]] = {}  # by log, the last lines that tell how far the job is
        self._unfinished: tuple[int, _Event] | None = (
            None  # the line after it belongs to it, until the line of this number
        )
        self._patterns_found = {row.beside: False for row in facts.failures.values() if row.beside}

    def feed(
        self, text: str, lines: Sequence[str], shapes: Sequence[LineShape], name: str = "", number: int = 1
    ) -> None:
        """Read lines of a log; `name` and the number of the first say where they are."""
        for pattern, occurred in self._patterns_found.items():
            self._patterns_found[pattern] = occurred or re.search(pattern, text) is not None
        if name != self._log:
            self._log, self._time = name, ""
        progress = self._progress.setdefault(name, deque(maxlen=MIN_PROGRESS))
        for offset, (line, shape) in enumerate(zip(lines, shapes, strict=True)):
            self._number += 1
            if shape.shows_progress:
                progress.append(self._number)
            if self._reads_all or shape.is_raw or (shape.is_suspect and self._is_new(shape)):
                self._where = f"{name}:{number + offset}" if name else ""
                self._read_parts(line, shape)

    @property
    def _reads_all(self) -> bool:
        """Return whether the next line may belong to the one before."""
        return bool(self._tracebacks.open_blocks) or self._root.is_open or self._unfinished is not None

    def _is_new(self, shape: LineShape) -> bool:
        """Return whether few lines were like this one but for their numbers."""
        if len(self._shape_counts) > MAX_ALIKE:
            self._shape_counts.clear()
        self._shape_counts[shape] += 1
        return self._shape_counts[shape] <= MAX_ALIKE

    def _read_parts(self, line: str, shape: LineShape) -> None:
        for part in printable_parts(line) if shape.is_raw else (line,):
            part_shape = self._classifier.classify_lines(part)[0] if shape.is_raw else shape
            is_read = self._reads_all or not shape.is_raw
            if "NCCL INFO " in part:  # which the verdict on the network reads
                continue
            if is_read or (part_shape.is_suspect and self._is_new(part_shape)):
                if time := TIME.search(part[:MAX_LINE_LENGTH]):
                    self._time = time.group().strip()
                self._read_line(TIME.sub("", part[:MAX_LINE_LENGTH]), part_shape.failures)

    def _read_line(self, text: str, rules: Iterable[Failure]) -> None:
        """Read a line without its time."""
        stated_text = GUESSES.split(text, maxsplit=1)[0]
        matches = tuple((rule, meaning) for rule in rules if (meaning := rule.meaning(stated_text)) is not None)
        line = Line(text, matches)
        self._endings |= {id(rule): rule for rule, _ in matches if rule.ended}
        if not self._ended_node and any(rule.ended for rule, _ in matches):
            self._ended_node = _first_match(NODE_PATTERNS[:1], text)
        self._root.feed(line)
        if self._unfinished and self._extend_message(line):
            return
        if HEADER in text:
            self._tracebacks.begin(text)
        elif frame := FRAME.match(text) or RICH_FRAME.match(text) if "File " in text or ".py:" in text else None:
            self._tracebacks.add_frame(frame)
        elif not self._tracebacks.consume_line(line, self._number):
            self._record_line(line)

    def _extend_message(self, line: Line) -> bool:
        """Add a line to the message before it, which ends with a colon; False for a line that says more by itself."""
        last_number, event = self._unfinished or (0, None)
        stack = STACK.match(line.text)
        if not event or self._number > last_number or HEADER in line.text or (line.matches and not stack):
            self._unfinished = None
            return False
        words = stack["error"] if stack else line.text.strip(" \t|>-*=")
        if words:
            head = event.line.text.partition(" … ")[0] if stack else event.line.text
            longer_event = replace(
                event, line=replace(event.line, text=f"{head.rstrip()} {'… ' if stack else ''}{words}")
            )
            self._events = {
                tier: longer_event if recorded is event else recorded for tier, recorded in self._events.items()
            }
            self._unfinished = (self._number + MAX_MESSAGE_LINES, longer_event) if stack else None
        return bool(words)

    def _end_traceback(self, block: Traceback) -> None:
        if event := self._event_of_block(block):
            self._record(event)

    def _event_of_block(self, block: Traceback) -> _Event | None:
        """Return what a traceback shows: its first exception of a known kind, else the last without a direct cause."""
        if not block.raised:
            return None
        raised_with_line = [(raised, self._line_with_reason(raised)) for raised in block.raised]
        causes = [pair for pair in raised_with_line if _weight(pair[1]) != "effect"]
        chosen, line = causes[-1] if causes else raised_with_line[0]
        known_pairs = [pair for pair in causes if pair[1].matches]
        if known_pairs:
            chosen, line = known_pairs[0]
        else:
            for earlier in reversed(causes[:-1]):
                if not chosen.is_direct:
                    break
                chosen, line = earlier
        if not causes and not _says_why(line):
            return None
        tier = TRACEBACK if causes else EFFECT
        return _Event(tier, chosen.number, line, f"{block.header} {chosen.line.text}", chosen.files, self._where)

    def _line_with_reason(self, raised: RaisedException) -> Line:
        """Return the first line of an exception's message that says why."""
        lines = [raised.line, *raised.message]
        for line in lines:
            if line.matches and _weight(line) == "cause":
                return line
        for line in () if raised.line.matches else raised.message:
            if REASON.search(line.text):
                return line
        if raised.line.text.rstrip().endswith(":") and raised.message:
            return Line(f"{raised.line.text.rstrip()} {raised.message[0].text.strip()}", raised.line.matches)
        return raised.line

    def _record_line(self, line: Line) -> None:
        """Record what a line outside of tracebacks shows."""
        if (hang := HANG.search(line.text)) and len(self._hung_ranks) < MAX_RANKS:
            self._hung_ranks.setdefault(int(hang["rank"]), hang["work"])
        is_warning = WARNING.search(line.text) is not None
        if line.matches:
            rule = line.matches[-1][0]
            tiers = {"cause": CAUSE, "effect": EFFECT, "retry": RETRY}
            tier = tiers[rule.weight]
            if not rule.why:
                return
            if tier == CAUSE:
                tier = TRACEBACK if rule.ended else RETRY if is_warning else CAUSE
            self._record(_Event(tier, self._number, line, where=self._where))
        elif not is_warning and error_lines.states_error(line.text):
            self._record(_Event(ERROR_LINE, self._number, line, where=self._where))
        elif not is_warning and error_lines.probably_states_error(line.text):
            self._record(_Event(PROBABLE, self._number, line, where=self._where))

    def _record(self, event: _Event) -> None:
        """Keep the event if it is the first of its tier, by time in another log, or after many lines without any."""
        event = replace(event, log=self._log, time=self._time)
        first_event = self._events.get(event.tier)
        if not first_event or _is_before(event, first_event) or self._is_another_story(event, first_event):
            self._events[event.tier] = event
            if event.line.text.rstrip().endswith(":"):
                self._unfinished = (self._number + MAX_MESSAGE_LINES, event)
        self._last_numbers[event.tier] = max(event.number, self._last_numbers.get(event.tier, 0))
        rank = _first_match(RANK_PATTERNS, f"{event.line.text} {event.context}")
        if event.tier == TRACEBACK and rank and len(self._first_traceback_by_rank) < MAX_RANKS:
            self._first_traceback_by_rank.setdefault(rank, event)

    def _is_another_story(self, event: _Event, first_event: _Event) -> bool:
        return event.log == first_event.log and event.number > self._last_numbers[event.tier] + QUIET_LINES

    def failure(self, nccl: str | None, ranks: int = 0) -> JobFailure | None:
        """Return what ended the job, as far as the lines show; None where they show nothing.

        Args:
            nccl: NCCL's version, where it is known.
            ranks: of the job, 0 where that is not known.
        """
        reader = copy(self)
        reader._events, reader._last_numbers, reader._first_traceback_by_rank = (
            dict(self._events),
            dict(self._last_numbers),
            dict(self._first_traceback_by_rank),
        )
        for block in self._tracebacks.open_blocks.values():
            if event := self._event_of_block(block):
                reader._record(event)
        return reader._judge(nccl, ranks)

    def _judge(self, nccl: str | None, ranks: int) -> JobFailure | None:
        events = dict(self._events)
        if self._root.event and EFFECT in events:
            events[EFFECT] = self._root.event
        if TRACEBACK in events and self._root.rank in self._first_traceback_by_rank:
            events[TRACEBACK] = self._first_traceback_by_rank[self._root.rank]
        if _precedes(events.get(CAUSE), events.get(TRACEBACK)):
            del events[TRACEBACK]
        has_ended = any(self._fits(rule, nccl) for rule in self._endings.values())
        for _, event in sorted(events.items()):
            matches = [match for match in event.line.matches if self._fits(match[0], nccl)]
            if event.line.matches and not (matches and matches[-1][0].why):
                continue
            later_progress = 0 if has_ended else sum(n > event.number for n in self._progress.get(event.log, ()))
            if event.tier == PROBABLE and (later_progress or self._number > event.number + QUIET_LINES):
                return None
            failure = self._job_failure(event, matches, has_ended, ranks)
            nearby_line = _quote_beside(event, events) if event.tier == EFFECT else ""
            return replace(
                failure, nearby_line=nearby_line, is_warning=failure.is_warning or later_progress >= MIN_PROGRESS
            )
        return None

    def _fits(self, rule: Failure, nccl: str | None) -> bool:
        return (not rule.beside or self._patterns_found[rule.beside]) and (not nccl or rule.holds(nccl))

    def _job_failure(self, event: _Event, matches: Sequence[Match], has_ended: bool, ranks: int) -> JobFailure:
        rule, why = matches[-1] if matches else (None, "")
        text = f"{event.line.text} {event.context}"
        rank, node = _first_match(RANK_PATTERNS, text), _first_match(NODE_PATTERNS, text)
        if not rank and event.tier in (TRACEBACK, EFFECT) and not node:
            rank = self._root.rank
        if rank and rank == self._root.rank and not node:
            node = self._root.host
        node = node or self._ended_node
        layer, is_network = self._layer(event, rule)
        if HANG.search(event.line.text):
            why = f"{why} ({self._describe_hang(ranks)})"
        if rule and rule.network:
            why += "".join(
                f"; {match[0]} {description}"
                for description, pattern in LOCAL_ADDRESSES.items()
                if (match := pattern.search(text))
            )
        quote = error_lines.quote(event.line.text, rule)
        network = rule.network if rule else None
        if not matches and (exception := EXCEPTION.match(quote)) and PROGRAM_EXCEPTION.fullmatch(exception["type"]):
            why = "an exception of Python code"
            network = None if is_network else False
        return JobFailure(
            *(quote, why, layer, rank, node, network, event.where, has_ended, event.tier == EFFECT),
            *(event.tier in (RETRY, PROBABLE), event.tier == PROBABLE),
        )

    def _layer(self, event: _Event, rule: Failure | None) -> tuple[str, bool]:
        """Return the part of the system in which it failed, and whether that moves data between nodes."""
        if rule and rule.layer:
            return rule.layer, False
        files = [path for path, _ in event.files if not STANDARD.search(path)]
        frames = [frame for frame in event.files if frame[0] in files and not LIBRARY.search(frame[0])]
        frames = [frame for frame in frames if not self._layer_of(frame[0])[0]]
        job_code = f"{basename(frames[-1][0])}, line {frames[-1][1]}" if frames else ""
        if files:
            name, is_network = self._layer_of(files[-1])
            if not name and (library := LIBRARY.search(files[-1])):
                name = f"the library {library['name']}"
            if not name:
                return f"the job's own code, {job_code}", False
            return f"{name}, called by {job_code}" if job_code else name, is_network
        for row in self._facts.layers.values():
            if row.lines and re.search(row.lines, event.line.text):
                return row.name, row.network
        return "", False

    def _layer_of(self, path: str) -> tuple[str, bool]:
        """Return the part that a Python file belongs to, and whether that moves data; "" for one that is not known."""
        for row in self._facts.layers.values():
            if row.files and (match := re.search(row.files, path)):
                return row.name.format(**match.groupdict()), row.network
        return "", False

    def _describe_hang(self, ranks: int) -> str:
        """Return who waited for whom, of the ranks whose watchdog reported a collective."""
        works = {rank: match.groups() for rank, work in self._hung_ranks.items() if (match := WORK.search(work))}
        missing = sorted(set(range(ranks)) - self._hung_ranks.keys())
        waiting = f"{_list_ranks(sorted(self._hung_ranks))} waited"
        if len({number for number, _ in works.values()}) > 1:
            least_number = min(int(number) for number, _ in works.values())
            last_ranks = sorted(rank for rank, (number, _) in works.items() if int(number) == least_number)
            return f"{waiting}, and {_list_ranks(last_ranks)} was the furthest behind, in number {least_number}"
        if len({operation for _, operation in works.values()}) > 1:
            return f"{waiting} in different operations, {', '.join(sorted({name for _, name in works.values()}))}"
        return f"{waiting}, and {_list_ranks(missing)} did not report" if missing else waiting


@dataclass
class _RootCause:
    """What torchrun's blocks say of the first failure, by the earliest time."""

    rank: str = ""
    host: str = ""
    time: str = ""
    event: _Event | None = None
    _fields: dict[str, str] = field(default_factory=dict)
    is_open: bool = False

    def feed(self, line: Line) -> None:
        if ROOT_CAUSE in line.text:
            self.is_open, self._fields = True, {}
        elif self.is_open:
            if match := ROOT_FIELD.search(line.text):
                self._fields.setdefault(match["name"], match["value"].strip())
                if line.matches and _says_why(line) and (not self.time or self._fields.get("time", "~") <= self.time):
                    self.event = _Event(EFFECT, 0, line)
            if "=====" in line.text or len(self._fields) >= ROOT_FIELDS:
                self._end()

    def _end(self) -> None:
        self.is_open = False
        time = self._fields.get("time", "~")
        if not self.time or time < self.time:
            self.time = time
            self.rank = self._fields.get("rank", "").partition(" ")[0]
            self.host = self._fields.get("host", "")


def _is_before(event: _Event, first_event: _Event) -> bool:
    """Return whether the event is the earlier one: of two logs by their times, where both have one of the same form."""
    if event.log != first_event.log and event.time and len(event.time) == len(first_event.time):
        return event.time < first_event.time
    return event.number < first_event.number


def _precedes(cause: _Event | None, raised: _Event | None) -> bool:
    """Return whether an error of the network comes before an exception of a kind that no rule knows."""
    if not cause or not raised or raised.line.matches or cause.number > raised.number:
        return False
    return any(rule.network for rule, _ in cause.line.matches)


def _quote_beside(effect: _Event, events: Mapping[int, _Event]) -> str:
    """Return the line of an unknown kind that is near an effect, and may say why."""
    near = (event for tier in (ERROR_LINE, PROBABLE) if (event := events.get(tier)))
    lines = (event.line.text for event in near if abs(event.number - effect.number) <= NEAR_LINES)
    return error_lines.quote(next(lines, ""))


def _says_why(line: Line) -> bool:
    return not line.matches or bool(line.matches[-1][0].why)


def _weight(line: Line) -> str:
    return line.matches[-1][0].weight if line.matches else "cause"


def _first_match(patterns: Iterable[re.Pattern[str]], text: str) -> str:
    """Return what the first of the patterns finds; "" for nothing."""
    for pattern in patterns:
        if match := pattern.search(text):
            return next(filter(None, match.groups()), "")
    return ""


def _list_ranks(ranks: Sequence[int]) -> str:
    """Return "rank 3", or "ranks 0, 1 and 2 others"."""
    listed = ", ".join(map(str, ranks[:8]))
    remainder = f" and {len(ranks) - 8} others" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}{remainder}"
