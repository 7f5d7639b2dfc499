"""What lines of NCCL's logs mean: facts/nccl-logs.yaml as plain data, which needs no YAML where a job reads its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Pattern

MAX_STARTS = 4  # places in a line where a pattern is tried: more would take the square of the line's length
# The plain text that an expression begins with. A character is not part of it if a quantifier makes it optional.
PLAIN = re.compile(r"(?:[\w /,:=<>'-](?![?*{]))*")
ESCAPED = re.compile(r"\\.")
GROUP = re.compile(r"\([^()]*\)")


@dataclass(frozen=True, eq=False)
class LogPattern:
    """A pattern of lines, and their meaning; `{name}` in `why` is a group of the pattern."""

    pattern: Pattern[str]
    why: str
    mark: str  # the plain text that every match begins with
    component: str = "nccl"  # whose version `since` and `before` are
    since: str | None = None
    before: str | None = None
    requires_line: str = ""  # found in some other line of the log, or this one means nothing
    is_fatal: bool = False  # no job gets over it, whatever its channels use
    after_start: bool = False  # only an NCCL that has started writes it
    slows_job: bool = False  # the job goes on, much slower than it should
    in_any_line: bool = False  # also in lines that are not NCCL's
    supersedes: tuple[str, ...] = ()  # causes that say nothing beside it

    def fits(self, version: str | None) -> bool:
        """Return whether an NCCL of this version (None: not known) may have written it."""
        if not version or self.component != "nccl":
            return True
        number = _number(version)
        is_reached = self.since is None or number >= _number(self.since)
        return is_reached and (self.before is None or number < _number(self.before))

    def meaning(self, line: str) -> str | None:
        """Return what `line` means; None for another line."""
        start = line.find(self.mark)
        for _ in range(MAX_STARTS):
            if start < 0:
                return None
            if match := self.pattern.match(line, start):
                return self.why.format(**{key: value or "" for key, value in match.groupdict().items()})
            start = line.find(self.mark, start + 1)
        return None


class LogPatterns:
    """The networks that NCCL names, the causes of a wrong one, and what is only a note."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        """Take the tables `networks`, `causes` and `notes`, as `NcclLogFacts.plain` of the facts returns them."""
        self._networks = [(re.compile(row["name"]), str(row["carrier"])) for row in data["networks"].values()]
        self.causes = {name: _log_pattern(row) for name, row in data["causes"].items()}
        self.notes = {name: _log_pattern(row) for name, row in data["notes"].items()}

    def carrier_of(self, network: str) -> str | None:
        """Return what the network of this name sends over: "libfabric", "verbs" or "tcp"; None for an unknown one."""
        return next((carrier for name, carrier in self._networks if name.fullmatch(network)), None)


def _log_pattern(row: Mapping[str, Any]) -> LogPattern:
    fields: dict[str, Any] = dict(row)
    expression = fields.pop("pattern")
    fields["supersedes"] = tuple(fields.get("supersedes", ()))
    return LogPattern(pattern=re.compile(expression), mark=_literal_prefix(expression), **fields)


def _literal_prefix(expression: str) -> str:
    """Return the plain text that every match begins with; "" for an expression that has none."""
    simplified = ESCAPED.sub("", expression)
    while (reduced := GROUP.sub("", simplified)) != simplified:
        simplified = reduced
    match = None if "|" in simplified else PLAIN.match(expression)
    return match.group() if match else ""


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
