"""Read the tracebacks of Python in a log in which those of several ranks may be mixed."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rdma_images.facts.failures import Failure
from rdma_images.nccl_logs.error_lines import EXCEPTION

MAX_BLOCKS = 64  # tracebacks that are open at once, one a stream
MAX_FRAMES = 200  # of a traceback
MAX_BLOCK_LINES = 500  # lines between two frames of a traceback, of whichever stream
MAX_MESSAGE_LINES = 12  # lines of an exception's message that are looked into

HEADER = "Traceback (most recent call last)"
FRAME = re.compile(r'^(?P<prefix>.*?)\s*File ["“](?P<path>[^"”]+)["”], line (?P<line>\d+)')
RICH_FRAME = re.compile(r"^(?P<prefix>.*?)[│|]\s+(?P<path>/[^\s:│]+\.py):(?P<line>\d+) in ")  # as rich writes it
LINKS = ("During handling of the above exception", "The above exception was the direct cause")
CHILD_ERROR = "terminated with the following error"  # torch.multiprocessing, before a child's traceback

Match = tuple[Failure, str]  # a rule that fits a line, and what the line means by it


@dataclass(frozen=True)
class Line:
    """A line with what it can mean."""

    text: str
    matches: tuple[Match, ...] = ()


@dataclass(frozen=True)
class RaisedException:
    """An exception of a traceback."""

    line: Line
    number: int
    files: tuple[tuple[str, str], ...]  # path and line of its frames
    is_direct: bool  # the one before is its cause
    message: list[Line] = field(default_factory=list)  # the lines after the first


@dataclass
class Traceback:
    """A traceback, with those that it is chained to."""

    header: str
    indent: int
    files: list[tuple[str, str]] = field(default_factory=list)  # since the last exception
    raised: list[RaisedException] = field(default_factory=list)
    continues: bool = False  # the next traceback belongs to it
    is_direct: bool = False
    lines: int = 0  # since the last exception


class Tracebacks:
    """The open tracebacks by what their lines begin with; each is given on as it ends."""

    def __init__(self, on_finish: Callable[[Traceback], None]) -> None:
        self.open_blocks: dict[str, Traceback] = {}
        self._on_finish = on_finish

    def begin(self, text: str) -> None:
        """Begin a traceback at its header, or go on with the one that it is chained to."""
        prefix = text[: text.index(HEADER)]
        key = prefix.rstrip()
        block = self.open_blocks.get(key)
        if block and block.raised and _ends_with_colon(block.raised[-1]) and not block.raised[-1].line.matches:
            block.raised.clear()
            block.continues = True
        if block and block.continues:
            block.continues = False
            return
        self._close(key)
        if len(self.open_blocks) >= MAX_BLOCKS:
            self._close(next(iter(self.open_blocks)))
        self.open_blocks[key] = Traceback(text, len(prefix) - len(key))

    def add_frame(self, frame: re.Match[str]) -> None:
        """Add a frame to the traceback of its stream."""
        key = frame["prefix"]
        block = self.open_blocks.get(key)
        if block is None:
            # Its header is another one's line ("Scheduler hit an exception: Traceback"), or not in the log.
            open_keys = [name for name, block in self.open_blocks.items() if not block.files and not block.raised]
            block = self.open_blocks.pop(open_keys[-1]) if open_keys else Traceback(key, 0)
            block.indent = max(0, frame.start("path") - len('File "') - len(key) - 2)
            self._close(key)
            self.open_blocks[key] = block
        block.lines = 0
        block.files.append((frame["path"], frame["line"]))
        del block.files[:-MAX_FRAMES]

    def consume_line(self, line: Line, number: int) -> bool:
        """Return whether the line is a part of an open traceback that says nothing beside it."""
        for key in reversed(self.open_blocks):
            if line.text.startswith(key):
                return self._consume_in(key, self.open_blocks[key], line, number)
        return False

    def _consume_in(self, key: str, block: Traceback, line: Line, number: int) -> bool:
        text = line.text[len(key) + block.indent :]
        block.lines += 1
        if block.lines > (MAX_BLOCK_LINES if block.files or not block.raised else MAX_MESSAGE_LINES):
            self._close(key)
            return False
        if block.files:
            if not text.strip() or text[0].isspace() or text[0] in "│╰":
                return True
            if not EXCEPTION.match(text):
                return False
            block.raised.append(RaisedException(line, number, tuple(block.files), block.is_direct))
            block.files, block.is_direct, block.lines = [], False, 0
            return True
        if not block.raised:
            return False
        if CHILD_ERROR in text:  # what a child raised follows, and is the cause
            block.raised.clear()
        if CHILD_ERROR in text or any(link in text for link in LINKS):
            block.continues, block.is_direct = True, LINKS[1] in text
            return True
        if text.strip():
            block.raised[-1].message.append(line)
        return False

    def _close(self, key: str) -> None:
        if block := self.open_blocks.pop(key, None):
            self._on_finish(block)


def _ends_with_colon(raised: RaisedException) -> bool:
    """Return whether an exception's message ends with a colon.

    The traceback after it is then its cause.
    """
    lines = [line for line in (raised.line, *raised.message) if line.text.strip()]
    return lines[-1].text.rstrip().endswith(":")
