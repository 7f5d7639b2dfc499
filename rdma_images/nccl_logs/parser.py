"""Parse NCCL's log lines, as job runners leave them."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from rdma_images.facts import facts_file
from rdma_images.facts.failures import Failures
from rdma_images.facts.nccl_logs import NcclLogs, Wording
from rdma_images.nccl_logs import error_lines
from rdma_images.nccl_logs.error_lines import MAX_QUOTE_LENGTH
from rdma_images.nccl_logs.failure_reader import FailureReader
from rdma_images.nccl_logs.job_failure import JobFailure
from rdma_images.nccl_logs.line_filter import USUAL, Channels, LineClassifier, MatchingLine, plain_text, printable_parts
from rdma_images.nccl_logs.node_differences import COMPARED_VALUES, NodeDifferences

# An expression that begins with plain text is found twenty times as fast as one that begins with a choice or with \b.
MESSAGE = re.compile(r"NCCL (?<!\wNCCL )(?:INFO|WARN|ATTN|ERROR|TRACE) ")
MAX_MESSAGE_LENGTH = 4096  # characters of a message; NCCL's own buffers are no longer
MAX_NAMES = 1000  # different names, or lines of one meaning, that are remembered: no job of NCCL's has as many

VERSION = re.compile(r"NCCL version (\d{1,4}(?:\.\d{1,4}){1,3})(?!\d)")
CHANNEL = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? : (?P<sender>\d{1,6})(?:\[\w+\])? -> (?P<receiver>\d{1,6})(?:\[\w+\])? "
    r"(?:\[\w+\] )?via (?P<transport>.*)"
)
# The device ends the network's name: without one the line was cut, and so may the name be. "(3)" is the rank that sends
# in this one's stead.
NET = re.compile(r"NET/(?P<network>[^/]*)(?P<complete>/\d+(?:\(\d+\))?(?P<gdr>/GDRDMA)?)?")
# The end of a log that was cut in a channel, perhaps before it says GPUDirect.
CUT_CHANNEL = re.compile(r" via NET/(?P<network>[^/\n]+)/\d+(?:\(\d+\))?(?:/(?!GDRDMA|Shared)[GDRM]*)?\Z")
INSIDE_NODE = re.compile(r"(?:P2P|SHM)(?:/\w+)?|direct shared memory")
ANNOUNCED = re.compile(r"Using (?:network|internal Network) (?P<network>.+?)\s*$", re.MULTILINE)
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?P<provider>[\w;-]+)")
DEVICES = re.compile(r"NET/IB ?: (?:Using |(?=\[\d))(?P<devices>[^;\n]*)")
DEVICE = re.compile(r"\[\d+\] ?(?P<name>[\w.-]+):\d+/")  # in braces where NCCL merged several into one
RANKS = re.compile(r" n[Rr]anks (?P<ranks>\d{1,6})\b(?: nNodes (?P<nodes>\d{1,6})\b)?")
# What a line has in it that one of these expressions finds.
LINE_MARKS = (
    "NET/OFI Selected ",
    "NET/IB",
    "Using internal Network ",
    "NCCL INFO Ring ",
    " nranks ",
    " nRanks ",
    "NCCL WARN ",
    *(mark for mark, _, _ in COMPARED_VALUES),
)
WARNING = re.compile(r"NCCL (?<!\wNCCL )WARN +(?P<words>\S.*)")


@dataclass
class LogSummary:
    """The statements of a log's lines, each once, whichever rank made it."""

    nccl: str | None = None
    has_nccl_lines: bool = False  # a line of NCCL's is among them
    channels: Counter[str] = field(default_factory=Counter)  # "NET/Libfabric/GDRDMA", "P2P/CUMEM"
    networks: set[str] = field(default_factory=set)  # of the channels, a name that was cut with "…"
    senders: set[int] = field(default_factory=set)  # the ranks whose own lines about channels are there
    receivers: set[int] = field(default_factory=set)
    ranks: int = 0  # of the largest communicator
    nodes: dict[int, int] = field(default_factory=dict)  # by the ranks of the communicator
    announced: set[str] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)  # of libfabric
    devices: set[str] = field(default_factory=set)  # of libibverbs
    causes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()  # those of the causes that leave no job good, whatever its channels use
    fatal_faults: tuple[str, ...] = ()  # those of the faults that no job gets over
    transfer_faults: tuple[str, ...] = ()  # those of them that end a job in which NCCL has started
    notes: tuple[str, ...] = ()
    failure: JobFailure | None = None  # what ended the job, whichever part it was
    has_ended: bool = False  # after one of them no job goes on, and this one has not
    first_warning: str = ""  # of NCCL that no row knows
    differences: str = ""  # between the nodes


class LogParser:
    """Parse the logs of a job block by block; holds what they say and none of their lines."""

    def __init__(self, wordings: NcclLogs) -> None:
        self._summary = LogSummary()
        self._differences = NodeDifferences()
        self._wordings = wordings
        wordings_looked_for = (*wordings.causes.values(), *wordings.notes.values())
        failures = facts_file.read(Failures)
        self._classifier = LineClassifier(wordings_looked_for, LINE_MARKS, failures.failures.values())
        self.failure_reader = FailureReader(failures, self._classifier)
        self._nccl_lines: dict[str, dict[str, None]] = {
            row.pattern: {} for row in wordings_looked_for
        }  # and the lines of NCCL's that say it
        self._other_lines: dict[str, dict[str, None]] = {  # and the lines of others
            row.pattern: {} for row in wordings_looked_for if row.anywhere
        }
        self._has_pattern = {
            row.requires_line: False for row in wordings_looked_for if row.requires_line
        }  # whether it was found

    def feed(self, lines: Sequence[str]) -> None:
        """Parse some lines of a log. A line may hold the messages of several ranks."""
        text = plain_text("\n".join(lines))
        channels = Channels()
        matching: list[MatchingLine] = []
        shapes = self._classifier.classify_lines(text)
        for line, shape in zip(text.split("\n"), shapes, strict=True):
            if shape.matters and not (shape is USUAL and channels.count(0, line)):
                matching.append((line, shape))
        self.failure_reader.feed(text, text.split("\n"), shapes)
        self.feed_matching(text, matching, channels, any(shape.is_nccl for shape in set(shapes)))

    def feed_matching(self, text: str, matching: Sequence[MatchingLine], channels: Channels, is_nccl: bool) -> None:
        """Parse a text by its `matching` lines; `channels` are those of its others.

        `is_nccl` says whether any line is NCCL's.
        """
        self._count_channels(channels)
        self._summary.has_nccl_lines |= is_nccl and MESSAGE.search(text) is not None
        for pattern, occurred in self._has_pattern.items():
            self._has_pattern[pattern] = occurred or re.search(pattern, text) is not None
        messages: dict[str, None] = {}
        other_lines: dict[str, None] = {}
        for line, times in Counter(line for line, _ in matching).items():
            for part in printable_parts(line):
                if not self._summary.first_warning and (warning := WARNING.search(part)):
                    words = warning["words"][:MAX_MESSAGE_LENGTH]
                    is_known = any(re.search(row.pattern, words) for row in self._wordings.causes.values())
                    if not is_known and not error_lines.continues(words):
                        self._summary.first_warning = words[:MAX_QUOTE_LENGTH]
                prefix, *line_messages = MESSAGE.split(part) if "NCCL" in part else (part,)
                if self._summary.nccl is None and (version := VERSION.search(part)):
                    self._summary.nccl = version[1]
                self._summary.has_nccl_lines |= bool(line_messages)
                if not line_messages:
                    other_lines[prefix[:MAX_MESSAGE_LENGTH]] = None
                for before, message in zip((prefix, *line_messages), line_messages, strict=False):
                    self._differences.feed(before[-MAX_MESSAGE_LENGTH:], message[:MAX_MESSAGE_LENGTH])
                    if not _parse_channel(self._summary, message[:MAX_MESSAGE_LENGTH], times):
                        messages[message[:MAX_MESSAGE_LENGTH]] = None
        patterns = (
            None
            if any(shape.is_raw for _, shape in matching)
            else {row.pattern for _, shape in matching for row in shape.wordings}
        )
        self._interpret(messages, other_lines, patterns)

    def is_cut(self, text: str) -> bool:
        """Return whether the text ends in a channel that was cut before "GDRDMA"."""
        cut = CUT_CHANNEL.search(text, text.rfind("\n") + 1)
        return cut is not None and f"NET/{cut['network']}/GDRDMA" in self._summary.channels

    def _count_channels(self, channels: Channels) -> None:
        """Count the channels of lines that say nothing else."""
        for channel in channels.network.values():
            _add_names(self._summary.networks, [channel.match["network"]])
            _count(self._summary.channels, f"NET/{channel.match['network']}{channel.match['gdr'] or ''}", channel.times)
        for channel in channels.node.values():
            _count(self._summary.channels, channel.match["transport"], channel.times)
            _add_pair(self._summary, channel.match)

    def summary(self) -> LogSummary:
        """Return what all lines fed so far say together."""
        summary = self._summary
        # A name that was cut says nothing new where it begins one that was not.
        cut_names = {name for name in summary.networks if name.endswith("…")}
        complete_names = summary.networks - cut_names
        summary.networks -= {name for name in cut_names if any(other.startswith(name[:-1]) for other in complete_names)}
        causes = self._causes()
        summary.causes = self._meanings(causes)
        summary.faults = self._meanings(row for row in causes if row.stops or row.degrades)
        summary.fatal_faults = self._meanings(row for row in causes if row.stops)
        summary.transfer_faults = self._meanings(row for row in causes if row.stops and row.started)
        summary.differences = self._differences.sentence()
        summary.notes = self._meanings(self._wordings.notes.values())
        summary.failure = self.failure_reader.failure(summary.nccl, summary.ranks)
        summary.has_ended = bool(summary.fatal_faults) or self.failure_reader.has_ended(summary.nccl)
        return summary

    def _interpret(self, messages: Iterable[str], other_lines: Iterable[str], patterns: Container[str] | None) -> None:
        """Record what the messages of a block tell, and those of its lines that have a meaning.

        Of the wordings only `patterns` can be in the block; None: any.
        """
        _add_messages(self._summary, "\n".join(messages))
        for lines_by_pattern, lines in ((self._nccl_lines, messages), (self._other_lines, other_lines)):
            text = "\n".join(lines)
            for pattern, matched_lines in lines_by_pattern.items():
                if patterns is not None and pattern not in patterns:
                    continue
                # A search in the whole text costs a fraction of one in each line.
                if len(matched_lines) < MAX_NAMES and re.search(pattern, text, re.MULTILINE):
                    matching = (line for line in lines if re.search(pattern, line))
                    matched_lines.update(dict.fromkeys(islice(matching, MAX_NAMES)))

    def _causes(self) -> list[Wording]:
        """Return the causes that the lines show, without those that say nothing beside another."""
        matching = {name: row for name, row in self._wordings.causes.items() if self._meanings([row])}
        replaced_names = {name for row in matching.values() for name in row.instead_of}
        return [row for name, row in matching.items() if name not in replaced_names]

    def _meanings(self, rows: Iterable[Wording]) -> tuple[str, ...]:
        """Return the lines' meanings in the order of the table: later rows explain earlier ones."""
        version = self._summary.nccl
        applicable = (
            row for row in rows if row.fits(version) and (not row.requires_line or self._has_pattern[row.requires_line])
        )
        meanings = (
            row.meaning(line)
            for row in applicable
            for line in chain(self._nccl_lines[row.pattern], self._other_lines.get(row.pattern, ()))
        )
        return tuple(dict.fromkeys(meaning for meaning in meanings if meaning))


def _parse_channel(summary: LogSummary, message: str, times: int) -> bool:
    """Count a message's channel `times` times; return whether it is about one."""
    match = CHANNEL.search(message)
    if not match:
        return False
    transport = match.group("transport")
    if net := NET.match(transport):
        name = net.group("network").strip()
        if not net.group("complete"):
            _add_names(summary.networks, [f"{name}…"])
            return True
        _add_names(summary.networks, [name])
        _count(summary.channels, f"NET/{name}{net.group('gdr') or ''}", times)
    elif inside := INSIDE_NODE.match(transport):
        _count(summary.channels, inside.group(), times)
        _add_pair(summary, match)
    return True


def _add_pair(summary: LogSummary, channel: re.Match[str]) -> None:
    """Record the ranks that a channel inside a node connects."""
    summary.senders.add(int(channel["sender"]))
    summary.receivers.add(int(channel["receiver"]))


def _add_messages(summary: LogSummary, messages: str) -> None:
    """Record the network announced, providers, devices and the size of the job."""
    _add_names(summary.announced, (match["network"] for match in ANNOUNCED.finditer(messages)))
    _add_names(summary.providers, (match["provider"] for match in PROVIDER.finditer(messages)))
    for match in DEVICES.finditer(messages):
        _add_names(summary.devices, DEVICE.findall(match["devices"]))
    for match in RANKS.finditer(messages):
        ranks = int(match["ranks"])
        summary.ranks = max(summary.ranks, ranks)
        if match["nodes"]:
            summary.nodes[ranks] = max(summary.nodes.get(ranks, 0), int(match["nodes"]))


def _add_names(names: set[str], more: Iterable[str]) -> None:
    """Add names, as long as they can be a job's."""
    for name in more:
        if len(names) < MAX_NAMES:
            names.add(name)


def _count(channels: Counter[str], transport: str, times: int) -> None:
    if transport in channels or len(channels) < MAX_NAMES:
        channels[transport] += times
