"""Find the lines of a log that can mean something: of those that differ only in numbers, one is looked into."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator

from rdma_images.nccl_logs.log_patterns import LogPattern

NUMBERS = b"0123456789abcdef"  # deleted from lines; a mark may then be found where it was not, and is never missed
MAX_CLASSES = 20_000  # classes that are remembered
MAX_CLASS_BYTES = 1000  # bytes of one
CONTROL_BYTES = bytes((*range(9), *range(10, 32), 127))  # control characters but the tab
WIDE_CONTROL = re.compile(rb"\xc2[\x80-\x9f]|\xed[\xa0-\xbf]")  # control characters, surrogates
# What colours a line or moves a cursor, and whatever else a terminal would act on, tabs left out; half a character,
# which JSON can write and no terminal can show.
CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
    r"|\x9b[0-?]*[ -/]*[@-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]"
)


@dataclass(frozen=True, eq=False)
class LineClass:
    """The possible meanings of lines that differ only in numbers."""

    is_relevant: bool = False  # such a line can mean something
    is_nccl: bool = False  # it is NCCL's
    is_raw: bool = False  # it has to be unwrapped or cleaned before anything can be found in it
    patterns: tuple[LogPattern, ...] = ()  # what it may mean


NOT_NCCL, IRRELEVANT_NCCL, RELEVANT_NCCL = (
    LineClass(),
    LineClass(is_nccl=True),
    LineClass(is_relevant=True, is_nccl=True),
)


class LineClasses(Dict[bytes, LineClass]):
    """Map lines without their numbers to their classes."""

    def __init__(self, patterns: Iterable[LogPattern], marks: Iterable[str]) -> None:
        """Take what makes a line relevant: the beginning of a pattern, or a mark."""
        super().__init__()
        self._patterns = tuple((_without_numbers(row.mark), row) for row in patterns)
        self._patterns_in_any_line = tuple((mark, row) for mark, row in self._patterns if row.in_any_line)
        self._marks = tuple(_without_numbers(mark) for mark in marks)

    def of_lines(self, text: str) -> list[LineClass]:
        """Return the class of each line of the text."""
        return list(map(self.__getitem__, _without_numbers(text).split(b"\n")))

    def __missing__(self, text: bytes) -> LineClass:
        kind = self._new_class(text)
        if len(text) <= MAX_CLASS_BYTES:
            if len(self) >= MAX_CLASSES:
                self.clear()
            self[text] = kind
        return kind

    def _new_class(self, text: bytes) -> LineClass:
        is_nccl = NCCL in text
        rows = self._patterns if is_nccl else self._patterns_in_any_line
        patterns = tuple(row for mark, row in rows if mark in text)
        if text.startswith(b"{") or _has_control(text):
            return LineClass(is_relevant=True, is_nccl=is_nccl, is_raw=True, patterns=patterns)
        if patterns or any(mark in text for mark in self._marks):
            return LineClass(is_relevant=True, is_nccl=is_nccl, patterns=patterns)
        if is_nccl:
            return RELEVANT_NCCL if all(mark in text for mark in IN_CHANNELS) else IRRELEVANT_NCCL
        return NOT_NCCL


def printable_texts(line: str) -> Iterator[str]:
    """Yield the non-empty texts of a log line, unwrapped from JSON, without control characters."""
    for part in filter(None, _unwrap_json(line) if line.startswith("{") else line.split("\r")):
        yield part if part.isprintable() else CONTROL.sub("", part)


def _unwrap_json(line: str) -> Iterator[str]:
    """Yield the lines of every string in the JSON object on this line, or the line itself if it is no JSON."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        yield line
    else:
        yield from (part for value in fields.values() if isinstance(value, str) for part in value.splitlines())


def _has_control(text: bytes) -> bool:
    """Return whether text has control characters or surrogates.

    A search for all of them takes ten times as long.
    """
    is_plain = text.isascii() or WIDE_CONTROL.search(text) is None
    return not is_plain or len(text.translate(None, CONTROL_BYTES)) < len(text)


def _without_numbers(text: str) -> bytes:
    return text.encode(errors="surrogatepass").translate(None, NUMBERS)


NCCL = _without_numbers("NCCL ")
IN_CHANNELS = (_without_numbers(" : "), _without_numbers(" via "))  # what no line about a channel to a rank lacks
