"""Find what ended a job by the structure of its log: tracebacks, launchers' blocks, and the lines of other parts.

A line that is quoted is a fact; its kind, by facts/failures.yaml, is inferred. Which line counts is decided by how much
it shows (`Evidence`), then by whether it names a reason, and then by its order.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from posixpath import basename

from rdma_images.facts.failures import Failure, Failures
from rdma_images.nccl_logs import error_lines
from rdma_images.nccl_logs.error_lines import (
    EXCEPTION,
    GUESSES,
    INFORMATION,
    PROGRAM_EXCEPTION,
    REASON,
    STACK,
    WARNING,
)
from rdma_images.nccl_logs.line_filter import RULE_LINE, LineClassifier, LineShape, printable_parts
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
MAX_BLOCK_LINES = 40  # between two lines of dashes
MAX_PARAGRAPHS = 1000  # messages after a line of dashes that are read as a whole
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
LAST_ERROR = "Last error:"  # torch, before NCCL's message
ROOT_CAUSE = "Root Cause (first observed failure)"
ROOT_FIELD = re.compile(r"\s(?P<name>time|host|rank|exitcode|traceback) *: (?P<value>.+)")
HANG = re.compile(r"\[Rank (?P<rank>\d{1,6})\] Watchdog caught collective operation timeout: \w+\((?P<work>[^)]*)")
CHECK_GOES_ON = re.compile(r"rdma-images-(?:node-check|all-reduce) \S+ (?:warning|note) ")
WORK = re.compile(r"SeqNum=(?P<number>\d+), OpType=(?P<operation>\w+)")


@dataclass(frozen=True, kw_only=True)
class JobFailure:
    """The failure that ended a job, by one line of its log."""

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
        context = ", ".join(filter(None, (process and f"on {process}", self.layer and f"in {self.layer}", network)))
        where = f" ({context})" if context else ""
        if not self.why:
            kind = "a warning" if self.is_warning else "an error"
            kind = "an exception of the program" if error_lines.RAISED.match(self.quote) else kind
            kind = "probably" if self.is_probable else f"{kind}, quoted and not judged"
            return f'{kind}{where}: "{self.quote}"'
        why = f"probably {self.why}" if self.is_probable else self.why
        nearby = f'; beside it: "{self.nearby_line}"' if self.nearby_line else ""
        return f'{why}{where}, inferred from "{self.quote}"{nearby}'


class Evidence(IntEnum):
    """The weight of a line as evidence of what ended a job, the most first."""

    ENDED = 0  # a traceback, or a line of a known kind after which no job goes on
    CAUSE = 1  # a line of another known kind
    EFFECT = 2  # a line of a kind that follows from another
    ERROR = 3  # a line that its program marks as an error
    RETRY = 4  # a warning of a known kind
    WORDS = 5  # a line with words of failing
    WARNING = 6  # a warning with such words


@dataclass(frozen=True)
class _Event:
    """A failure that a line or a traceback shows."""

    evidence: Evidence
    number: int
    line: Line
    context: str = ""  # another line that may name the rank or node
    files: tuple[tuple[str, str], ...] = ()
    where: str = ""
    log: str = ""  # its name
    time: str = ""  # the last one in this log before it

    @property
    def states_reason(self) -> bool:
        """Return whether the line names its own cause."""
        return REASON.search(self.line.text) is not None


class FailureReader:
    """Read the lines of a job that can show a failure; holds the first of each kind."""

    def __init__(self, facts: Failures, classifier: LineClassifier) -> None:
        """`classifier` says of each line which failures it may show."""
        self._facts = facts
        self._classifier = classifier
        self._tracebacks = Tracebacks(self._end_traceback)
        self._events: dict[int, _Event] = {}  # the one that counts, of each evidence
        self._last_numbers: dict[int, int] = {}  # the number of the last line of each evidence
        self._first_traceback_by_rank: dict[str, _Event] = {}  # the first traceback of a rank
        self._root = _RootCause()
        self._hung_ranks: dict[int, str] = {}  # rank -> the collective
        self._endings: dict[int, Failure] = {}  # the rules of lines after which no job goes on
        self._last_ending = "", 0  # the log and the number of the last such line
        self._ended_node = ""  # the first that a supervisor names
        self._shape_counts: Counter[LineShape] = Counter()
        self._number = 0
        self._log = self._where = self._time = ""
        self._progress: dict[str, deque[int]] = {}  # by log, the last lines that tell how far the job is
        self._unfinished: tuple[int, _Event] | None = (
            None  # the line after it belongs to it, until the line of this number
        )
        self._paragraph: list[Line] | None = None  # after a line of dashes: one message over several lines
        self._paragraphs = self._block_end = 0  # how many, and the number of the line where the open one ends at last
        self._has_pattern = {row.requires_line: False for row in facts.failures.values() if row.requires_line}

    def feed(
        self, text: str, lines: Sequence[str], shapes: Sequence[LineShape], name: str = "", number: int = 1
    ) -> None:
        """Read lines of a log; `name` and the number of the first say where they are."""
        for pattern, occurred in self._has_pattern.items():
            self._has_pattern[pattern] = occurred or re.search(pattern, text) is not None
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
        is_open = bool(self._tracebacks.open_blocks) or self._root.is_open
        return is_open or self._unfinished is not None or self._paragraph is not None

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
            # NCCL's is read by the verdict on the network; what the checks before a command go on from is no failure.
            if "NCCL INFO " in part or CHECK_GOES_ON.search(part):
                continue
            if is_read or (part_shape.is_suspect and self._is_new(part_shape)):
                if time := TIME.search(part[:MAX_LINE_LENGTH]):
                    self._time = time.group().strip()
                self._read_line(TIME.sub("", part[:MAX_LINE_LENGTH]).removeprefix("[] "), part_shape.failures)

    def _read_line(self, text: str, rules: Iterable[Failure]) -> None:
        """Read a line without its time."""
        line = _interpret(text, rules)
        if endings := {id(rule): rule for rule, _ in line.matches if rule.ended}:
            self._endings |= endings
            self._last_ending = self._log, self._number
        if not self._ended_node and any(rule.ended for rule, _ in line.matches):
            self._ended_node = _first_match(NODE_PATTERNS[:1], text)
        self._root.feed(line)
        if (self._unfinished and self._extend_message(line)) or self._in_paragraph(line):
            return
        if HEADER in text:
            self._tracebacks.begin(text)
        elif frame := FRAME.match(text) or RICH_FRAME.match(text) if "File " in text or ".py:" in text else None:
            self._tracebacks.add_frame(frame)
        elif not self._tracebacks.consume_line(line, self._number):
            self._record_line(line)

    def _extend_message(self, line: Line) -> bool:
        """Add a line to an unfinished message; return whether it belongs to it.

        The message before it ends with a colon; a line that says more by itself does not belong to it.
        """
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
                key: longer_event if recorded is event else recorded for key, recorded in self._events.items()
            }
            self._unfinished = (self._number + MAX_MESSAGE_LINES, longer_event) if stack else None
        return bool(words)

    def _in_paragraph(self, line: Line) -> bool:
        """Return whether the line belongs to a paragraph that is read as a whole."""
        is_rule = line.text.endswith(RULE_LINE) and not line.text.strip(" -")
        is_traceback = HEADER in line.text or bool(self._tracebacks.open_blocks)
        if self._paragraph is not None and (is_rule or is_traceback or not line.text.strip()):
            self._end_paragraph()
        if is_rule and self._number <= self._block_end:
            self._block_end = 0
        elif is_rule and not is_traceback and self._paragraphs < MAX_PARAGRAPHS:
            self._paragraph, self._block_end = [], self._number + MAX_BLOCK_LINES
            self._paragraphs += 1
        elif self._paragraph is not None:
            self._paragraph.append(line)
            if len(self._paragraph) > MAX_MESSAGE_LINES:
                self._end_paragraph()
        return is_rule or self._paragraph is not None

    def _end_paragraph(self) -> None:
        """Read a paragraph as one line; the lines of one that is too long each by itself."""
        lines, self._paragraph = self._paragraph or [], None
        if len(lines) <= MAX_MESSAGE_LINES:
            text = " ".join(line.text.strip() for line in lines)
            lines = [_interpret(text, self._classifier.classify_lines(text)[0].failures)] if text else []
        for line in lines:
            self._record_line(line)

    def _end_traceback(self, block: Traceback) -> None:
        if event := self._event_of_block(block):
            self._record(event)

    def _event_of_block(self, block: Traceback) -> _Event | None:
        """Return the event that a traceback shows; None for no failure.

        It is the first exception of a known kind, else the last without a direct cause.
        """
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
        if not causes and not _has_reason(line):
            return None
        evidence = Evidence.ENDED if causes else Evidence.EFFECT
        return _Event(evidence, chosen.number, line, f"{block.header} {chosen.line.text}", chosen.files, self._where)

    def _line_with_reason(self, raised: RaisedException) -> Line:
        """Return the first line of an exception's message that says why."""
        lines = [raised.line, *raised.message]
        for line in lines:
            if line.matches and _weight(line) == "cause":
                return line
        for line in () if raised.line.matches else raised.message:
            if REASON.search(line.text):
                return line
        for line, following in pairwise(raised.message):
            prefix, is_last_error, _ = line.text.partition(LAST_ERROR)
            if is_last_error and (message := following.text[len(prefix) :].strip()):
                head = raised.line.text.partition(" NCCL error in: ")[0]
                return Line(f"{head} … {LAST_ERROR} {message}", raised.line.matches)
        if raised.line.text.rstrip().endswith(":") and raised.message:
            return Line(f"{raised.line.text.rstrip()} {raised.message[0].text.strip()}", raised.line.matches)
        return raised.line

    def _record_line(self, line: Line) -> None:
        """Record what a line outside of tracebacks shows."""
        if (hang := HANG.search(line.text)) and len(self._hung_ranks) < MAX_RANKS:
            self._hung_ranks.setdefault(int(hang["rank"]), hang["work"])
        if (evidence := _evidence(line)) is not None:
            self._record(_Event(evidence, self._number, line, where=self._where))

    def _record(self, event: _Event) -> None:
        """Keep the event if it counts more than the known one of its evidence.

        So does one that comes long after the last.
        """
        event = replace(event, log=self._log, time=self._time)
        recorded = self._events.get(event.evidence)
        if not recorded or _counts_more(event, recorded) or self._is_another_story(event, recorded):
            self._events[event.evidence] = event
            if event.line.text.rstrip().endswith(":"):
                self._unfinished = (self._number + MAX_MESSAGE_LINES, event)
        self._last_numbers[event.evidence] = max(event.number, self._last_numbers.get(event.evidence, 0))
        rank = _first_match(RANK_PATTERNS, f"{event.line.text} {event.context}")
        if event.evidence == Evidence.ENDED and rank and len(self._first_traceback_by_rank) < MAX_RANKS:
            self._first_traceback_by_rank.setdefault(rank, event)

    def _is_another_story(self, event: _Event, recorded: _Event) -> bool:
        """Return whether the job went on for long after the recorded event."""
        if event.log != recorded.log:
            return False
        is_late = event.number > self._last_numbers[event.evidence] + QUIET_LINES
        return is_late or self._progress_after(recorded) >= MIN_PROGRESS

    def _progress_after(self, event: _Event) -> int:
        """Return how many of the last lines that tell how far the job is came after the event."""
        return self._progress_since(event.log, event.number)

    def _progress_since(self, log: str, number: int) -> int:
        return sum(later > number for later in self._progress.get(log, ()))

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

    def has_ended(self, nccl: str | None) -> bool:
        """Return whether the job ended: no line tells of progress after a last line."""
        log, number = self._last_ending
        return self._has_ending(nccl) and self._progress_since(log, number) < MIN_PROGRESS

    def _has_ending(self, nccl: str | None) -> bool:
        return any(self._fits(rule, nccl) for rule in self._endings.values())

    def _judge(self, nccl: str | None, ranks: int) -> JobFailure | None:
        events = dict(self._events)
        if self._root.event and Evidence.EFFECT in events:
            events[Evidence.EFFECT] = self._root.event
        if Evidence.ENDED in events and self._root.rank in self._first_traceback_by_rank:
            events[Evidence.ENDED] = self._first_traceback_by_rank[self._root.rank]
        if _precedes(events.get(Evidence.CAUSE), events.get(Evidence.ENDED)):
            del events[Evidence.ENDED]
        has_ended = self._has_ending(nccl)
        for _, event in sorted(events.items()):
            matches = [match for match in event.line.matches if self._fits(match[0], nccl)]
            if event.line.matches and not (matches and matches[-1][0].why):
                continue
            later_progress = 0 if has_ended else self._progress_after(event)
            is_quiet = self._number > event.number + QUIET_LINES
            if event.evidence >= Evidence.WORDS and (later_progress or is_quiet):
                return None
            failure = self._job_failure(event, matches, has_ended, ranks)
            nearby_line = _quote_nearby(event, events) if event.evidence == Evidence.EFFECT else ""
            is_got_over = later_progress >= MIN_PROGRESS or (failure.is_probable and is_quiet and not has_ended)
            return replace(failure, nearby_line=nearby_line, is_warning=failure.is_warning or is_got_over)
        return None

    def _fits(self, rule: Failure, nccl: str | None) -> bool:
        return (not rule.requires_line or self._has_pattern[rule.requires_line]) and (not nccl or rule.holds(nccl))

    def _job_failure(self, event: _Event, matches: Sequence[Match], has_ended: bool, ranks: int) -> JobFailure:
        rule, why = matches[-1] if matches else (None, "")
        text = f"{event.line.text} {event.context}"
        rank, node = _first_match(RANK_PATTERNS, text), _first_match(NODE_PATTERNS, text)
        if not rank and event.evidence in (Evidence.ENDED, Evidence.EFFECT) and not node:
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
        is_raised = bool(event.files) or error_lines.RAISED.search(event.line.text) is not None
        network = rule.network if rule else None
        if not matches and (exception := EXCEPTION.match(quote)) and PROGRAM_EXCEPTION.fullmatch(exception["type"]):
            why = "an exception of Python code"
            network = None if is_network else False
        return JobFailure(
            quote=quote,
            why=why,
            layer=layer,
            rank=rank,
            node=node,
            network=network,
            where=event.where,
            has_ended=has_ended,
            is_effect=event.evidence == Evidence.EFFECT,
            is_warning=event.evidence >= Evidence.RETRY,
            is_probable=event.evidence == Evidence.WORDS or bool(rule and rule.generic and not is_raised),
        )

    def _layer(self, event: _Event, rule: Failure | None) -> tuple[str, bool]:
        """Return the part of the system that failed, and whether it moves data."""
        if rule and rule.layer:
            return rule.layer, False
        if rule and rule.generic:  # of any program: a row of the program that writes it knows the part
            for earlier_rule, _ in reversed(event.line.matches):
                if earlier_rule.layer:
                    return earlier_rule.layer, False
        files = [path for path, _ in event.files if not STANDARD.search(path)]
        frames = [frame for frame in event.files if frame[0] in files and not LIBRARY.search(frame[0])]
        frames = [frame for frame in frames if not self._code_layer(frame[0])[0]]
        job_code = f"{basename(frames[-1][0])}, line {frames[-1][1]}" if frames else ""
        if files:
            name, is_network = self._code_layer(files[-1])
            if not name and (library := LIBRARY.search(files[-1])):
                name = f"the library {library['name']}"
            if not name:
                return f"the job's own code, {job_code}", False
            return f"{name}, called by {job_code}" if job_code else name, is_network
        for row in self._facts.layers.values():
            if row.lines and re.search(row.lines, event.line.text):
                return row.name, row.network
        return "", False

    def _code_layer(self, path: str) -> tuple[str, bool]:
        """Return the part that a Python file belongs to, and whether that moves data.

        Returns:
            "" for one that is not known.
        """
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
            lowest_number = min(int(number) for number, _ in works.values())
            last_ranks = sorted(rank for rank, (number, _) in works.items() if int(number) == lowest_number)
            return f"{waiting}, and {_list_ranks(last_ranks)} was the furthest behind, in number {lowest_number}"
        if len({operation for _, operation in works.values()}) > 1:
            return f"{waiting} in different operations, {', '.join(sorted({name for _, name in works.values()}))}"
        return f"{waiting}, and {_list_ranks(missing)} did not report" if missing else waiting


@dataclass
class _RootCause:
    """The first failure by torchrun's blocks: the one with the earliest time."""

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
                if line.matches and _has_reason(line) and (not self.time or self._fields.get("time", "~") <= self.time):
                    self.event = _Event(Evidence.EFFECT, 0, line)
            if "=====" in line.text or len(self._fields) >= ROOT_FIELDS:
                self._finish()

    def _finish(self) -> None:
        self.is_open = False
        time = self._fields.get("time", "~")
        if not self.time or time < self.time:
            self.time = time
            self.rank = self._fields.get("rank", "").partition(" ")[0]
            self.host = self._fields.get("host", "")


def _interpret(text: str, rules: Iterable[Failure]) -> Line:
    """Return the line with each rule that matches its statement.

    In a line of information no rule of any program's words counts. What the line itself guesses is not matched.
    """
    stated_text = GUESSES.split(text, maxsplit=1)[0]
    if INFORMATION.search(text):
        rules = [rule for rule in rules if not rule.generic]
    return Line(text, tuple((rule, meaning) for rule in rules if (meaning := rule.meaning(stated_text)) is not None))


def _counts_more(event: _Event, recorded: _Event) -> bool:
    """Return whether `event` replaces `recorded`: it states a reason, or is earlier."""
    if event.states_reason != recorded.states_reason and event.log == recorded.log:
        return event.states_reason
    return _is_before(event, recorded)


def _is_before(event: _Event, first_event: _Event) -> bool:
    """Return whether the event is the earlier one.

    Two logs are compared by their times, where both have one of the same form.
    """
    if event.log != first_event.log and event.time and len(event.time) == len(first_event.time):
        return event.time < first_event.time
    return event.number < first_event.number


def _precedes(cause: _Event | None, raised: _Event | None) -> bool:
    """Return whether an error of the network comes before an unknown exception."""
    if not cause or not raised or raised.line.matches or cause.number > raised.number:
        return False
    return any(rule.network for rule, _ in cause.line.matches)


def _quote_nearby(effect: _Event, events: Mapping[int, _Event]) -> str:
    """Return the line of an unknown kind that is near an effect, and may say why."""
    near = (event for evidence in (Evidence.ERROR, Evidence.WORDS) if (event := events.get(evidence)))
    lines = (event.line.text for event in near if abs(event.number - effect.number) <= NEAR_LINES)
    return error_lines.quote(next(lines, ""))


def _evidence(line: Line) -> Evidence | None:
    """Return how much a line outside of tracebacks shows; None for one that shows no failure."""
    rule = line.matches[-1][0] if line.matches else None
    is_warning = WARNING.search(line.text) is not None
    is_information = INFORMATION.search(line.text) is not None
    if rule and not rule.why:
        return None
    is_raised_retry = rule is not None and rule.weight == "retry" and error_lines.RAISED.search(line.text) is not None
    if is_raised_retry:
        return Evidence.CAUSE
    if rule and rule.weight != "cause":
        return Evidence.EFFECT if rule.weight == "effect" else Evidence.RETRY
    if rule:
        return Evidence.ENDED if rule.ended else Evidence.RETRY if is_warning or is_information else Evidence.CAUSE
    if is_information:
        return None
    if error_lines.states_error(line.text) and not is_warning:
        return None if error_lines.continues(line.text) else Evidence.ERROR
    if error_lines.probably_states_error(line.text):
        return Evidence.WARNING if is_warning else Evidence.WORDS
    return None


def _has_reason(line: Line) -> bool:
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
