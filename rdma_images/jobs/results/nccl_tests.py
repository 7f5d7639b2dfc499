"""Parse the tables that nccl-tests print, of every version since 2.10: the header names the columns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rdma_images.jobs.results.result import Bandwidth, Measurement, ValueWithSource
from rdma_images.nccl_logs.lines import printable_texts
from rdma_images.nccl_logs.reader import MAX_MESSAGE_LENGTH, MESSAGE

MAX_ROWS = 10_000  # rows of one log; a sweep from 8 bytes to 64 GiB has 34
MARKS = ("#", "busbw", "Test ")  # of the lines that stand outside a table

# People paste headers without the "#", and with a column of their own before it.
HEADER = re.compile(r"\b(size +count +.*\bbusbw\b.*)$")
STARTED = re.compile(r"# Collective test starting: (\w+?)(?:_perf)?\s*$")  # 2.17.4
SIZES = re.compile(r"# nThread \d+ .*?minBytes \d+ maxBytes (\d+) ")
REDUCED = re.compile(r"# Reducing maxBytes to (\d+) due to memory limitation")
OUT_OF_BOUNDS = re.compile(r"# Out of bounds values +: (\d+) (?:OK|FAILED)")
FAILED = re.compile(r"(Test (?:NCCL|CUDA) failure|Test timeout|Test failure)\b")
# What stands before a row, without a blank between where the size is as wide as its column: "[1,0]<stdout>:".
GLUED = re.compile(r"\D.*?(?<!\d)(\d+)$")
# A row is written in two pieces, before and after its measurement: lines of NCCL's can stand between them.
TORN = re.compile(r"^(.*\s-?\d+)[\w.-]*:\d+:\d+ \[\d+\]")
NUMBERS = re.compile(r"\s*(?:(?:[\d.]+(?:e[+-]?\d+)?|N/A|-?nan|inf)(?:\s+|$)){3,}$", re.IGNORECASE)
HALF = ("algbw", "busbw", "#wrong", "error")
TIMES = ("time", "cputime")


@dataclass
class NcclTestsParser:
    """Read the lines of one log that nccl-tests wrote, and collect the rows."""

    rows: list[Measurement] = field(default_factory=list)
    out_of_bounds: ValueWithSource | None = None  # the worst count
    largest: ValueWithSource | None = None  # bytes that were asked for, or that the memory allows
    failure: ValueWithSource | None = None
    concluded: bool = False  # the last table has its end
    _collective: str = ""
    _columns: tuple[str, ...] = ()  # those of the header that was read last
    _begun: str = ""  # the first piece of a row that was torn

    @property
    def has_open_table(self) -> bool:
        """Return whether rows may follow."""
        return bool(self._columns)

    def read(self, text: str, log: str, number: int) -> None:
        """Read whole lines of a log; its name and the number of the first line say where they are."""
        if not self.has_open_table and not any(mark in text for mark in MARKS):
            return
        for offset, line in enumerate(text.split("\n")):
            if self.has_open_table or any(mark in line for mark in MARKS):
                for part in printable_texts(line):
                    before, *messages = MESSAGE.split(part, 1)
                    if messages:
                        self._read_before_message(before[-MAX_MESSAGE_LENGTH:])
                    else:
                        self.read_line(part[-MAX_MESSAGE_LENGTH:], f"{log}:{number + offset}")

    def read_line(self, line: str, where: str) -> None:
        """Read a line of the log. A line of another program changes nothing."""
        comment = line.find("#")
        if "busbw" in line and (match := HEADER.search(line)):
            self._columns, self._begun, self.concluded = _columns(match[1]), "", False
        elif comment >= 0:
            self._read_comment(line[comment:], where)
        elif self._columns and len(self.rows) < MAX_ROWS:
            self._read_row(line, where)
        if "Test " in line and (match := FAILED.search(line)):
            self.failure = self.failure or ValueWithSource(match[1], where)

    def _read_before_message(self, text: str) -> None:
        """Read what stands before a message of NCCL's: it may have the first piece of a row."""
        if self._columns and (match := TORN.match(text)):
            self._begun = match[1]

    def _read_comment(self, line: str, where: str) -> None:
        if match := STARTED.match(line):
            self._collective = match[1]
        elif match := SIZES.match(line) or REDUCED.match(line):
            self.largest = ValueWithSource(match[1], where)
        elif match := OUT_OF_BOUNDS.match(line):
            if self.out_of_bounds is None or int(match[1]) > int(self.out_of_bounds.value):
                self.out_of_bounds = ValueWithSource(match[1], where)
            self._columns, self.concluded = (), True

    def _read_row(self, line: str, where: str) -> None:
        if self._begun and NUMBERS.match(line):
            line = f"{self._begun} {line}"
        row = _measurement(self._columns, line.split(), self._collective, where)
        if row:
            self.rows.append(row)
            self._begun = ""


def _columns(header: str) -> tuple[str, ...]:
    """Return the names of the columns. A timestamp is two words in a row."""
    names = header.split()
    return (*names[:-1], "date", "clock") if names[-1] == "timestamp" else tuple(names)


def _measurement(columns: Sequence[str], words: Sequence[str], collective: str, where: str) -> Measurement | None:
    """Return the row in the words, with or without its out-of-place half; None if they are no row."""
    width = _half_width(columns)
    for names in (
        columns,
        (*columns[: -2 * width - _timestamp_width(columns)], *columns[-width - _timestamp_width(columns) :]),
    ):
        values = list(words[-len(names) :])
        if len(values) < len(names):
            continue
        if match := GLUED.match(values[0]):
            values[0] = match[1]
        if row := _parse_row(names, values, collective, where):
            return row
    return None


def _half_width(columns: Sequence[str]) -> int:
    """Return how many columns a half of the row has."""
    times = [n for n, name in enumerate(columns) if name in TIMES]
    return times[1] - times[0] if len(times) == 2 else 0


def _timestamp_width(columns: Sequence[str]) -> int:
    return 2 if columns and columns[-1] == "clock" else 0


def _parse_row(names: Sequence[str], words: Sequence[str], collective: str, where: str) -> Measurement | None:
    """Return the row of the words under these columns; None where one does not fit."""
    leading = {
        name: word
        for name, word in zip(names, words, strict=True)
        if name in ("size", "count", "type", "redop", "root")
    }
    if not (
        leading["size"].isdecimal() and leading["count"].isdecimal() and re.match(r"[a-z]", leading.get("type", ""))
    ):
        return None
    halves: list[dict[str, str]] = []
    for name, word in zip(names, words, strict=True):
        if name in TIMES:
            halves.append({"time": word})
        elif name in HALF and halves:
            halves[-1][name] = word
    try:
        parsed = [_timing(half) for half in halves]
    except ValueError:
        return None
    if not parsed:
        return None
    return Measurement(
        collective=collective,
        size=int(leading["size"]),
        type=leading.get("type", ""),
        redop=leading.get("redop", ""),
        root=leading.get("root", ""),
        out_of_place=parsed[0] if len(parsed) == 2 else None,
        in_place=parsed[-1],
        where=where,
    )


def _timing(words: dict[str, str]) -> Bandwidth:
    """Return the timing of half a row. Raises ValueError where a cell is not a number.

    The column `error`, until nccl-tests 2.11, is a difference and not a count.
    """
    return Bandwidth(
        time=_number(words.get("time")),
        algbw=_number(words.get("algbw")),
        busbw=_number(words.get("busbw")),
        wrong=None if (wrong := _number(words.get("#wrong"))) is None else int(wrong),
    )


def _number(word: str | None) -> float | None:
    """Return the number in a word.

    Returns:
        None for a value that nccl-tests do not have ("N/A", nan).

    Raises:
        ValueError: The word is no number.
    """
    if word is None or word.lower() in ("n/a", "nan", "-nan", "inf"):
        return None
    value = float(word)
    if not 0 <= value < 1e15:
        raise ValueError(f"{word!r} is no time, rate or count")
    return value
