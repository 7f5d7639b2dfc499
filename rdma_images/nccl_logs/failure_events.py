"""The failures that lines and tracebacks of a log show, and which of two counts more.

A line that is quoted is a fact; its kind, by facts/failures.yaml, is inferred. Which line counts is decided by how much
it shows (`Evidence`), then by whether it names a reason, and then by its order.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from rdma_images.facts.failures import Failure
from rdma_images.nccl_logs import error_lines
from rdma_images.nccl_logs.error_lines import GUESSES, INFORMATION, REASON, WARNING
from rdma_images.nccl_logs.tracebacks import Line

ROOT_FIELDS = 5  # lines of torchrun's block on the first failure
NEAR_LINES = 50  # lines between a failure and another line that may say why
ROOT_CAUSE = "Root Cause (first observed failure)"
ROOT_FIELD = re.compile(r"\s(?P<name>time|host|rank|exitcode|traceback) *: (?P<value>.+)")


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
class FailureEvent:
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


@dataclass
class RootCause:
    """The first failure by torchrun's blocks: the one with the earliest time."""

    rank: str = ""
    host: str = ""
    time: str = ""
    event: FailureEvent | None = None
    _fields: dict[str, str] = field(default_factory=dict)
    is_open: bool = False

    def feed(self, line: Line) -> None:
        """Read the next line of the job, which may be one of a block."""
        if ROOT_CAUSE in line.text:
            self.is_open, self._fields = True, {}
        elif self.is_open:
            if match := ROOT_FIELD.search(line.text):
                self._fields.setdefault(match["name"], match["value"].strip())
                if (
                    line.matches
                    and has_known_reason(line)
                    and (not self.time or self._fields.get("time", "~") <= self.time)
                ):
                    self.event = FailureEvent(Evidence.EFFECT, 0, line)
            if "=====" in line.text or len(self._fields) >= ROOT_FIELDS:
                self._finish()

    def _finish(self) -> None:
        self.is_open = False
        time = self._fields.get("time", "~")
        if not self.time or time < self.time:
            self.time = time
            self.rank = self._fields.get("rank", "").partition(" ")[0]
            self.host = self._fields.get("host", "")


def interpret_line(text: str, rules: Iterable[Failure]) -> Line:
    """Return the line with each rule that matches its statement.

    In a line of information no rule of any program's words counts. What the line itself guesses is not matched.
    """
    stated_text = GUESSES.split(text, maxsplit=1)[0]
    if INFORMATION.search(text):
        rules = [rule for rule in rules if not rule.generic]
    return Line(text, tuple((rule, meaning) for rule in rules if (meaning := rule.meaning(stated_text)) is not None))


def counts_more(event: FailureEvent, recorded: FailureEvent) -> bool:
    """Return whether `event` replaces `recorded`: it states a reason, or is earlier."""
    if event.states_reason != recorded.states_reason and event.log == recorded.log:
        return event.states_reason
    return _is_before(event, recorded)


def _is_before(event: FailureEvent, first_event: FailureEvent) -> bool:
    """Return whether the event is the earlier one.

    Two logs are compared by their times, where both have one of the same form.
    """
    if event.log != first_event.log and event.time and len(event.time) == len(first_event.time):
        return event.time < first_event.time
    return event.number < first_event.number


def is_caused_by_network(cause: FailureEvent | None, raised: FailureEvent | None) -> bool:
    """Return whether an error of the network comes before an unknown exception."""
    if not cause or not raised or raised.line.matches or cause.number > raised.number:
        return False
    return any(rule.network for rule, _ in cause.line.matches)


def quote_nearby_line(effect: FailureEvent, events: Mapping[int, FailureEvent]) -> str:
    """Return the line of an unknown kind that is near an effect, and may say why."""
    near = (event for evidence in (Evidence.ERROR, Evidence.WORDS) if (event := events.get(evidence)))
    lines = (event.line.text for event in near if abs(event.number - effect.number) <= NEAR_LINES)
    return error_lines.quote(next(lines, ""))


def line_evidence(line: Line) -> Evidence | None:
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


def has_known_reason(line: Line) -> bool:
    """Return whether the line's rule, if it has one, says why a job ends."""
    return not line.matches or bool(line.matches[-1][0].why)


def rule_weight(line: Line) -> str:
    """Return whether the line's rule is about a cause, an effect or a retry; a line without a rule is a cause."""
    return line.matches[-1][0].weight if line.matches else "cause"
