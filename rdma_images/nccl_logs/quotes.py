"""Quotes from a log, without a judgement: NCCL's first warning, and the end of the first traceback."""

from __future__ import annotations

import re
from typing import Pattern

MAX_QUOTE_LENGTH = 240  # characters of a line that is quoted
MAX_TRACEBACK_LINES = 2000  # of all ranks that write at once
MAX_PREFIX_LENGTH = 100  # characters before a traceback, as launchers write them
TRACEBACK = "Traceback (most recent call last)"
NUMBER = re.compile(r"\d+")


class FirstTraceback:
    """Find the last line of a log's first traceback, in the lines of the rank that wrote it."""

    def __init__(self) -> None:
        self.last_line = ""
        self._own_line: Pattern[str] | None = None  # finds the text in the rank's lines
        self._left = 0  # lines in which the last one is looked for

    @property
    def is_open(self) -> bool:
        """Return whether the traceback has begun, and its last line has not come."""
        return self._left > 0

    def read(self, line: str) -> None:
        """Read a line; lines of other ranks, with another prefix, are ignored."""
        if self.last_line:
            return
        if not self._own_line:
            prefix, found, _ = line.partition(TRACEBACK)
            if found and len(prefix) <= MAX_PREFIX_LENGTH:
                # The time before each line of a rank differs in its numbers alone.
                self._own_line = re.compile(NUMBER.sub(r"\\d+", re.escape(prefix)) + r"(?P<text>\S.*)")
                self._left = MAX_TRACEBACK_LINES
            return
        self._left -= 1
        match = self._own_line.match(line)
        if match:
            self.last_line, self._left = shorten(match["text"]), 0


def shorten(line: str) -> str:
    """Return the line as far as it is quoted."""
    return line if len(line) <= MAX_QUOTE_LENGTH else f"{line[: MAX_QUOTE_LENGTH - 1]}…"
