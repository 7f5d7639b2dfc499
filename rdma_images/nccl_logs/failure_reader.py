"""Read what ended a job by the structure of its log: tracebacks, launchers' blocks, and the lines of other parts."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise

from rdma_images.facts.failures import Failure, Failures
from rdma_images.nccl_logs import error_lines
from rdma_images.nccl_logs.error_lines import EXCEPTION, PROGRAM_EXCEPTION, REASON, STACK
from rdma_images.nccl_logs.failure_events import (
    Evidence,
    FailureEvent,
    RootCause,
    counts_more,
    has_known_reason,
    interpret_line,
    is_caused_by_network,
    line_evidence,
    quote_nearby_line,
    rule_weight,
)
from rdma_images.nccl_logs.job_failure import (
    HANG,
    NODE_PATTERNS,
    RANK_PATTERNS,
    JobFailure,
    describe_hang,
    find_layer,
    first_match,
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
MAX_ALIKE = 1000  # lines that differ only in numbers, and shapes of lines that are counted
MAX_BLOCK_LINES = 40  # between two lines of dashes
MAX_PARAGRAPHS = 1000  # messages after a line of dashes that are read as a whole
MAX_RANKS = 1000  # ranks of which a hang is remembered
QUIET_LINES = 200  # lines without a failure, after which the next one is another story
MIN_PROGRESS = 3  # lines that tell how far a job is, after which it has got over a failure

# What of a line differs between lines of one stream: the time before them.
TIME = re.compile(
    r"(?:\d{4}[-/])?\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\s?"
)
# Addresses that mean another machine, or none, on each node.
LOCAL_ADDRESSES = {
    "is link-local": re.compile(r"\b169\.254\.\d+\.\d+"),
    "is of Docker's bridge": re.compile(r"\b172\.17\.\d+\.\d+"),
    "is each node itself": re.compile(r"\b127\.\d+\.\d+\.\d+|\blocalhost\b|\[::1\]"),
}
LAST_ERROR = "Last error:"  # torch, before NCCL's message
CHECK_GOES_ON = re.compile(r"rdma-images-(?:node-check|all-reduce) \S+ (?:warning|note) ")


class FailureReader:
    """Read the lines of a job that can show a failure; holds the first of each kind."""

    def __init__(self, facts: Failures, classifier: LineClassifier) -> None:
        """Take the facts, and what says of each line which failures it may show."""
        self._facts = facts
        self._classifier = classifier
        self._tracebacks = Tracebacks(self._end_traceback)
        self._events: dict[int, FailureEvent] = {}  # the one that counts, of each evidence
        self._last_numbers: dict[int, int] = {}  # the number of the last line of each evidence
        self._first_traceback_by_rank: dict[str, FailureEvent] = {}  # the first traceback of a rank
        self._root = RootCause()
        self._hung_ranks: dict[int, str] = {}  # rank -> the collective
        self._endings: dict[int, Failure] = {}  # the rules of lines after which no job goes on
        self._last_ending = "", 0  # the log and the number of the last such line
        self._ended_node = ""  # the first that a supervisor names
        self._shape_counts: Counter[LineShape] = Counter()
        self._number = 0
        self._log = self._where = self._time = ""
        self._progress: dict[str, deque[int]] = {}  # by log, the last lines that tell how far the job is
        # The line after it belongs to it, until the line of this number.
        self._unfinished: tuple[int, FailureEvent] | None = None
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
        line = interpret_line(text, rules)
        if endings := {id(rule): rule for rule, _ in line.matches if rule.ended}:
            self._endings |= endings
            self._last_ending = self._log, self._number
        if not self._ended_node and any(rule.ended for rule, _ in line.matches):
            self._ended_node = first_match(NODE_PATTERNS[:1], text)
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
            lines = [interpret_line(text, self._classifier.classify_lines(text)[0].failures)] if text else []
        for line in lines:
            self._record_line(line)

    def _end_traceback(self, block: Traceback) -> None:
        if event := self._event_of_block(block):
            self._record(event)

    def _event_of_block(self, block: Traceback) -> FailureEvent | None:
        """Return the event that a traceback shows; None for no failure.

        It is the first exception of a known kind, else the last without a direct cause.
        """
        if not block.raised:
            return None
        raised_with_line = [(raised, self._line_with_reason(raised)) for raised in block.raised]
        causes = [pair for pair in raised_with_line if rule_weight(pair[1]) != "effect"]
        chosen, line = causes[-1] if causes else raised_with_line[0]
        known_pairs = [pair for pair in causes if pair[1].matches]
        if known_pairs:
            chosen, line = known_pairs[0]
        else:
            for earlier in reversed(causes[:-1]):
                if not chosen.is_direct:
                    break
                chosen, line = earlier
        if not causes and not has_known_reason(line):
            return None
        evidence = Evidence.ENDED if causes else Evidence.EFFECT
        return FailureEvent(
            evidence, chosen.number, line, f"{block.header} {chosen.line.text}", chosen.files, self._where
        )

    def _line_with_reason(self, raised: RaisedException) -> Line:
        """Return the first line of an exception's message that says why."""
        lines = [raised.line, *raised.message]
        for line in lines:
            if line.matches and rule_weight(line) == "cause":
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
        if (evidence := line_evidence(line)) is not None:
            self._record(FailureEvent(evidence, self._number, line, where=self._where))

    def _record(self, event: FailureEvent) -> None:
        """Keep the event if it counts more than the known one of its evidence.

        So does one that comes long after the last.
        """
        event = replace(event, log=self._log, time=self._time)
        recorded = self._events.get(event.evidence)
        if not recorded or counts_more(event, recorded) or self._is_another_story(event, recorded):
            self._events[event.evidence] = event
            if event.line.text.rstrip().endswith(":"):
                self._unfinished = (self._number + MAX_MESSAGE_LINES, event)
        self._last_numbers[event.evidence] = max(event.number, self._last_numbers.get(event.evidence, 0))
        rank = first_match(RANK_PATTERNS, f"{event.line.text} {event.context}")
        if event.evidence == Evidence.ENDED and rank and len(self._first_traceback_by_rank) < MAX_RANKS:
            self._first_traceback_by_rank.setdefault(rank, event)

    def _is_another_story(self, event: FailureEvent, recorded: FailureEvent) -> bool:
        """Return whether the job went on for long after the recorded event."""
        if event.log != recorded.log:
            return False
        is_late = event.number > self._last_numbers[event.evidence] + QUIET_LINES
        return is_late or self._progress_after(recorded) >= MIN_PROGRESS

    def _progress_after(self, event: FailureEvent) -> int:
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
        """Return what ended the job, by the event of the strongest evidence that still counts; None for nothing.

        Args:
            nccl: The version of NCCL that the log names; None where it names none.
            ranks: How many ranks the job has.
        """
        events = dict(self._events)
        if self._root.event and Evidence.EFFECT in events:
            events[Evidence.EFFECT] = self._root.event
        if Evidence.ENDED in events and self._root.rank in self._first_traceback_by_rank:
            events[Evidence.ENDED] = self._first_traceback_by_rank[self._root.rank]
        if is_caused_by_network(events.get(Evidence.CAUSE), events.get(Evidence.ENDED)):
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
            nearby_line = quote_nearby_line(event, events) if event.evidence == Evidence.EFFECT else ""
            is_got_over = later_progress >= MIN_PROGRESS or (failure.is_probable and is_quiet and not has_ended)
            return replace(failure, nearby_line=nearby_line, is_warning=failure.is_warning or is_got_over)
        return None

    def _fits(self, rule: Failure, nccl: str | None) -> bool:
        return (not rule.requires_line or self._has_pattern[rule.requires_line]) and (not nccl or rule.holds(nccl))

    def _job_failure(self, event: FailureEvent, matches: Sequence[Match], has_ended: bool, ranks: int) -> JobFailure:
        """Return an event as the failure of the job: its line, cause, layer, rank and node.

        Args:
            event: The line, with its context.
            matches: The rules that its line matches, the deciding one last.
            has_ended: Whether the log shows that the job ended.
            ranks: How many ranks the job has.
        """
        rule, why = matches[-1] if matches else (None, "")
        text = f"{event.line.text} {event.context}"
        rank, node = first_match(RANK_PATTERNS, text), first_match(NODE_PATTERNS, text)
        if not rank and event.evidence in (Evidence.ENDED, Evidence.EFFECT) and not node:
            rank = self._root.rank
        if rank and rank == self._root.rank and not node:
            node = self._root.host
        node = node or self._ended_node
        layer, is_network = find_layer(event, rule, self._facts)
        if HANG.search(event.line.text):
            why = f"{why} ({describe_hang(self._hung_ranks, ranks)})"
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
