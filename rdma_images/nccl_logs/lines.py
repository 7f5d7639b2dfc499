"""Find the lines of a log that can mean something: of those that differ only in numbers, one is looked into."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator

from rdma_images.nccl_logs.wordings import Wording

NUMBERS = b"0123456789abcdef"  # deleted from lines; a mark may then be found where it was not, and is never missed
MAX_SHAPES = 20_000  # shapes that are remembered
MAX_SHAPE_BYTES = 1000  # bytes of one
CONTROL_BYTES = bytes((*range(9), *range(10, 32), 127))  # control characters but the tab
WIDE_CONTROL = re.compile(rb"\xc2[\x80-\x9f]|\xed[\xa0-\xbf]")  # control characters, surrogates
# What colours a line or moves a cursor, and whatever else a terminal would act on, tabs left out; half a character,
# which JSON can write and no terminal can show.
CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
    r"|\x9b[0-?]*[ -/]*[@-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]"
)


@dataclass(frozen=True, eq=False)
class LineShape:
    """What lines that differ only in numbers may mean."""

    matters: bool = False  # such a line can mean something
    is_nccl: bool = False  # it is NCCL's
    is_raw: bool = False  # it has to be unwrapped or cleaned before anything can be found in it
    wordings: tuple[Wording, ...] = ()  # what it may mean


FOREIGN, QUIET, USUAL = LineShape(), LineShape(is_nccl=True), LineShape(matters=True, is_nccl=True)


class LineShapes(Dict[bytes, LineShape]):
    """Map lines without their numbers to their shapes."""

    def __init__(self, wordings: Iterable[Wording], marks: Iterable[str]) -> None:
        """Take what makes a line matter: the beginning of a wording, or a mark."""
        super().__init__()
        self._wordings = tuple((_without_numbers(row.mark), row) for row in wordings)
        self._wordings_anywhere = tuple((mark, row) for mark, row in self._wordings if row.anywhere)
        self._marks = tuple(_without_numbers(mark) for mark in marks)

    def of_lines(self, text: str) -> list[LineShape]:
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
        rows = self._wordings if is_nccl else self._wordings_anywhere
        wordings = tuple(row for mark, row in rows if mark in text)
        if text.startswith(b"{") or _has_control(text):
            return LineShape(matters=True, is_nccl=is_nccl, is_raw=True, wordings=wordings)
        if wordings or any(mark in text for mark in self._marks):
            return LineShape(matters=True, is_nccl=is_nccl, wordings=wordings)
        if is_nccl:
            return USUAL if all(mark in text for mark in IN_CHANNELS) else QUIET
        return FOREIGN


def printable_parts(line: str) -> Iterator[str]:
    """Yield the non-empty texts of a log line, unwrapped from JSON, without control characters."""
    for part in filter(None, _unwrap_json(line) if line.startswith("{") else line.split("\r")):
        yield part if part.isprintable() else CONTROL.sub("", part)


def _unwrap_json(line: str) -> Iterator[str]:
    """Yield all the text in an object of JSON; a line that is no such object as it is."""
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
