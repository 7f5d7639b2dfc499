"""Find the lines of a job's log that can mean something: of thousands that differ only in numbers, one is parsed."""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rdma_images.facts.failures import Failure
from rdma_images.facts.nccl_logs import Wording

NUMBERS = b"0123456789abcdef"  # deleted from lines; a mark may then be found where it was not, and is never missed
MAX_SHAPES = 20_000  # shapes that are remembered
MAX_SHAPE_BYTES = 1000  # bytes of one
MAX_FAILURE_BYTES = 2048  # bytes of a line in which a failure is looked for
MARK_START = 3  # bytes of a mark by which it is found
# A terminal's colours, which some launchers give to the name before each line.
COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
# NCCL before 2.3 wrote its lines without its name.
NAMELESS = re.compile(r"(:\d+:\d+ \[\d+\] (?:\S+\.(?:cu|cc|h):\d+ )?)(?=(?:INFO|WARN) )")
CONTROL_BYTES = bytes((*range(9), *range(10, 32), 127))  # control characters but the tab
WIDE_CONTROL = re.compile(rb"\xc2[\x80-\x9f]|\xed[\xa0-\xbf]")  # control characters, surrogates
# What colours a line or moves a cursor, and whatever else a terminal would act on, tabs left out; half a character,
# which JSON can write and no terminal can show.
CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
    r"|\x9b[0-?]*[ -/]*[@-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]"
)
RULE_LINE = "-" * 60  # before and after a message of Open MPI and its like
# What a line has in it that can show a failure of a kind that no row knows.
SUSPECTS = (
    'rror|RROR|xception|Traceback (most|File "|atal: |FATAL|is not in|Root Cause (first|what():|'
    "Value error, |.cc:|.cpp:|.go:|CRITICAL|anic|aused by|fail|Fail|FAIL|annot|can't|ould not|ouldn't|"
    "nable to|not found|not avail|not supp|not valid|not reach|not init|not inst|not enough|not exist|"
    "not match|n't exist|n't supp|navail|nvalid|ncompat|nsupport|ismatch|o such|denied|imed out|imeout|"
    "efused|nreach|nexpected| exceed|nsufficient|rash|bort|orrupt|illed|llegal|issing|down|lost|fault|error |"
    "失败|错误|无法|找不到|未找到|超时|失敗|エラー|실패|fehlgeschlagen|introuvable|échec|impossible d|"
    "не найден|не удалось"
)
SUSPECT_MARKS = (*SUSPECTS.split("|"), RULE_LINE)
# What a line has in it in which a job tells how far it is.
PROGRESS_MARKS = ("loss", "step", "iteration", "poch ", "it/s", "samples/s", "tokens/s", "TFLOP", "busbw")
# The plain text that an expression begins with. A character is not part of it if a quantifier makes it optional.
PLAIN = re.compile(r"(?:[\w /,:=<>'-](?![?*{]))*")
ESCAPED = re.compile(r"\\.")
GROUP = re.compile(r"\([^()]*\)")

# A channel that fills its line, as most lines of a large job's log do.
CHANNEL_START = "NCCL INFO Channel "
OVER_NETWORK = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? : \d{1,6}\[\w+\] -> \d{1,6}\[\w+\] \[\w+\] "
    r"via NET/(?P<network>[\w ]*\w)/(?P<device>\d+)(?:\(\d+\))?(?P<gdr>/GDRDMA)?(?:/Shared)?",
    re.ASCII,
)
IN_NODE = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? : (?P<sender>\d{1,6})\[\w+\] -> (?P<receiver>\d{1,6})\[\w+\] (?:\[\w+\] )?"
    r"via (?P<transport>(?:P2P|SHM)(?:/\w+)?)(?:/[\w ]+)*",
    re.ASCII,
)


@dataclass(frozen=True, eq=False)
class LineShape:
    """The possible meanings that lines share which differ only in numbers."""

    matters: bool = False  # such a line can mean something
    is_nccl: bool = False  # it is NCCL's
    is_raw: bool = False  # it has to be unwrapped or cleaned before anything can be found in it
    wordings: tuple[Wording, ...] = ()  # what it may mean
    failures: tuple[Failure, ...] = ()  # the failures that it may show
    is_suspect: bool = False  # it may show a failure, of those or of another kind
    shows_progress: bool = False  # it tells how far the job is


FOREIGN, QUIET, PROGRESS = LineShape(), LineShape(is_nccl=True), LineShape(shows_progress=True)
USUAL = LineShape(matters=True, is_nccl=True)  # a channel, mostly with nothing else in the line


MatchingLine = tuple[str, LineShape]  # a line that can mean something


class LineClassifier(dict[bytes, LineShape]):
    """Map lines without their numbers to their shapes."""

    def __init__(self, rows: Iterable[Wording], marks: Iterable[str], failures: Iterable[Failure] = ()) -> None:
        """Take what makes a line matter: a mark, or the beginning of a wording."""
        super().__init__()
        self._rows = tuple((_without_numbers(_literal_prefix(row.pattern)), row) for row in rows)
        self._rows_anywhere = tuple((mark, row) for mark, row in self._rows if row.anywhere)
        self._failures = tuple(failures)
        self._failures_by_mark: dict[bytes, list[int]] = {}  # the indices of those that begin with it
        for index, row in enumerate(self._failures):
            for pattern in row.patterns:
                self._failures_by_mark.setdefault(_without_numbers(_literal_prefix(pattern)), []).append(index)
        self._marks_by_start: dict[bytes, list[bytes]] = {}
        for mark in self._failures_by_mark:
            self._marks_by_start.setdefault(mark[:MARK_START], []).append(mark)
        self._short_starts = [start for start in self._marks_by_start if len(start) < MARK_START]
        self._marks = tuple(_without_numbers(mark) for mark in marks)

    def classify_lines(self, text: str) -> list[LineShape]:
        """Return the shape of each line of the text."""
        return list(map(self.__getitem__, _without_numbers(text).split(b"\n")))

    def __missing__(self, text: bytes) -> LineShape:
        shape = self._new_shape(text)
        if len(text) <= MAX_SHAPE_BYTES:
            if len(self) >= MAX_SHAPES:
                self.clear()
            self[text] = shape
        return shape

    def _new_shape(self, text: bytes) -> LineShape:
        is_nccl = NCCL in text
        wordings = tuple(row for mark, row in (self._rows if is_nccl else self._rows_anywhere) if mark in text)
        start = b"" if NCCL_INFO in text else text[:MAX_FAILURE_BYTES]  # in which no failure is looked for
        possible_failures = self._possible_failures(start)
        if text.startswith(b"{") or _has_control(text):
            return LineShape(matters=True, is_nccl=is_nccl, is_raw=True, wordings=wordings, failures=possible_failures)
        if is_nccl and not wordings and all(mark in text for mark in IN_CHANNELS):
            return USUAL
        is_suspect = bool(possible_failures) or any(mark in start for mark in SUSPECT_BYTES)
        if wordings or any(mark in text for mark in self._marks):
            return LineShape(
                matters=True, is_nccl=is_nccl, wordings=wordings, failures=possible_failures, is_suspect=is_suspect
            )
        if is_suspect:
            return LineShape(is_nccl=is_nccl, failures=possible_failures, is_suspect=True)
        if is_nccl:
            return QUIET
        return PROGRESS if any(mark in start for mark in PROGRESS_BYTES) else FOREIGN

    def _possible_failures(self, text: bytes) -> tuple[Failure, ...]:
        """Return the failures of which a mark is in the text.

        Only marks whose first bytes are in it are looked for.
        """
        starts = {text[n : n + MARK_START] for n in range(len(text))} & self._marks_by_start.keys()
        marks = (mark for start in starts.union(self._short_starts) for mark in self._marks_by_start[start])
        indices = {index for mark in marks if mark in text for index in self._failures_by_mark[mark]}
        return tuple(self._failures[index] for index in sorted(indices))


def plain_text(text: str) -> str:
    """Return text without a terminal's colours, and with NCCL's name in all its lines."""
    text = COLOUR.sub("", text)
    return NAMELESS.sub(r"\1NCCL ", text) if "] INFO NET" in text or " WARN Failed to open libibverbs" in text else text


def _has_control(text: bytes) -> bool:
    """Return whether text has control characters or surrogates.

    A search for all of them takes ten times as long.
    """
    is_plain = text.isascii() or WIDE_CONTROL.search(text) is None
    return not is_plain or len(text.translate(None, CONTROL_BYTES)) < len(text)


def _without_numbers(text: str) -> bytes:
    return text.encode(errors="surrogatepass").translate(None, NUMBERS)


NCCL = _without_numbers("NCCL ")
SUSPECT_BYTES = tuple(_without_numbers(mark) for mark in SUSPECT_MARKS)
PROGRESS_BYTES = tuple(_without_numbers(mark) for mark in PROGRESS_MARKS)
NCCL_INFO = _without_numbers("NCCL INFO ")
IN_CHANNELS = (_without_numbers("Channel "), _without_numbers(" via "))  # what no line about a channel to a rank lacks


@functools.lru_cache(maxsize=4096)
def _literal_prefix(expression: str) -> str:
    """Return the plain text that every match begins with; "" for an expression that has none."""
    simplified = ESCAPED.sub("", expression)
    while (reduced := GROUP.sub("", simplified)) != simplified:
        simplified = reduced
    match = None if "|" in simplified else PLAIN.match(expression)
    return match.group() if match else ""


def printable_parts(line: str) -> Iterator[str]:
    """Yield a line without control characters, and out of the JSON that wraps it."""
    for part in _unwrap_json(line) if line.startswith("{") else (line,):
        yield part if part.isprintable() else CONTROL.sub("", part)


def _unwrap_json(line: str) -> Iterator[str]:
    """Yield all the text in an object of JSON; the line itself where it is none."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        yield line
    else:
        yield from (part for value in fields.values() if isinstance(value, str) for part in value.splitlines())


@dataclass
class Channel:
    """Lines about channels of one kind."""

    match: re.Match[str]  # of the first
    number: int  # of the first
    times: int = 1


@dataclass
class Channels:
    """The channels of lines that say nothing else."""

    network: dict[tuple[str, str], Channel] = field(default_factory=dict)  # who says it, and from "via" on
    node: dict[str, Channel] = field(default_factory=dict)  # from the ranks on

    def count(self, number: int, line: str) -> bool:
        """Count the channel of a line; return False for a line that says something else, too."""
        # The whole expression for the first line of a kind alone: there are thousands of each.
        prefix, _, channel = line.partition(CHANNEL_START)
        _, separator, network = channel.partition(" via NET/")
        if not separator:
            return self._count_in_node(number, line, prefix, channel)
        if counted := self.network.get((prefix, network)):
            counted.times += 1
            return True
        start = len(prefix)
        sender = prefix[prefix.rfind(" ", 0, prefix.rfind(" ", 0, start - 1)) + 1 :] if start > 1 else ""
        if counted := self.network.get((sender, network)):  # a time is before that
            counted.times += 1
        elif match := OVER_NETWORK.fullmatch(line, start):
            self.network[sender, network] = Channel(match, number)
        else:
            return False
        return True

    def _count_in_node(self, number: int, line: str, prefix: str, channel: str) -> bool:
        ranks = channel.partition(" : ")[2]
        if counted := self.node.get(ranks):
            counted.times += 1
        elif match := IN_NODE.fullmatch(line, len(prefix)):
            self.node[ranks] = Channel(match, number)
        else:
            return False
        return True
