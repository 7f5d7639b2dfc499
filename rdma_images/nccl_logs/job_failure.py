"""The failure that ended a job: its kind, the part of the system, and the rank and node, by one line of its log."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename

from rdma_images.facts.failures import Failure, Failures
from rdma_images.nccl_logs import error_lines
from rdma_images.nccl_logs.failure_events import FailureEvent

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
HANG = re.compile(r"\[Rank (?P<rank>\d{1,6})\] Watchdog caught collective operation timeout: \w+\((?P<work>[^)]*)")
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


def find_layer(event: FailureEvent, rule: Failure | None, facts: Failures) -> tuple[str, bool]:
    """Return the part of the system that failed, and whether it moves data."""
    if rule and rule.layer:
        return rule.layer, False
    if rule and rule.generic:  # of any program: a row of the program that writes it knows the part
        for earlier_rule, _ in reversed(event.line.matches):
            if earlier_rule.layer:
                return earlier_rule.layer, False
    files = [path for path, _ in event.files if not STANDARD.search(path)]
    frames = [frame for frame in event.files if frame[0] in files and not LIBRARY.search(frame[0])]
    frames = [frame for frame in frames if not _code_layer(frame[0], facts)[0]]
    job_code = f"{basename(frames[-1][0])}, line {frames[-1][1]}" if frames else ""
    if files:
        name, is_network = _code_layer(files[-1], facts)
        if not name and (library := LIBRARY.search(files[-1])):
            name = f"the library {library['name']}"
        if not name:
            return f"the job's own code, {job_code}", False
        return f"{name}, called by {job_code}" if job_code else name, is_network
    for row in facts.layers.values():
        if row.lines and re.search(row.lines, event.line.text):
            return row.name, row.network
    return "", False


def _code_layer(path: str, facts: Failures) -> tuple[str, bool]:
    """Return the part that a Python file belongs to, and whether that moves data.

    Returns:
        "" for one that is not known.
    """
    for row in facts.layers.values():
        if row.files and (match := re.search(row.files, path)):
            return row.name.format(**match.groupdict()), row.network
    return "", False


def describe_hang(hung_ranks: Mapping[int, str], ranks: int) -> str:
    """Return who waited for whom, of the ranks whose watchdog reported a collective.

    Args:
        hung_ranks: What the watchdog of each rank said of the collective.
        ranks: How many ranks the job has.
    """
    works = {rank: match.groups() for rank, work in hung_ranks.items() if (match := WORK.search(work))}
    missing = sorted(set(range(ranks)) - hung_ranks.keys())
    waiting = f"{_list_ranks(sorted(hung_ranks))} waited"
    if len({number for number, _ in works.values()}) > 1:
        lowest_number = min(int(number) for number, _ in works.values())
        last_ranks = sorted(rank for rank, (number, _) in works.items() if int(number) == lowest_number)
        return f"{waiting}, and {_list_ranks(last_ranks)} was the furthest behind, in number {lowest_number}"
    if len({operation for _, operation in works.values()}) > 1:
        return f"{waiting} in different operations, {', '.join(sorted({name for _, name in works.values()}))}"
    return f"{waiting}, and {_list_ranks(missing)} did not report" if missing else waiting


def first_match(patterns: Iterable[re.Pattern[str]], text: str) -> str:
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
