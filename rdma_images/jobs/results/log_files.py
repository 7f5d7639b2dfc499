"""Read what a job printed: a file or a pipe of any size, in pieces of whole lines, also while it is written."""

import codecs
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.files import FileError

READ_BYTES = 1 << 20  # bytes read at once
MAX_READ_BYTES = 32 << 20  # bytes of a growing file read in one look
MAX_LINE_LENGTH = 1 << 16  # characters of a line; a longer one is read in pieces


class LineBuffer:
    """Cut text that arrives in pieces at the ends of its lines."""

    def __init__(self) -> None:
        self._pending = ""

    def complete_lines(self, piece: str) -> str:
        """Return the lines that end in `piece`, and a line that is longer than MAX_LINE_LENGTH."""
        text = self._pending + piece
        line_end = max(text.rfind("\n"), text.rfind("\r")) + 1
        if not line_end and len(text) > MAX_LINE_LENGTH:
            line_end = len(text)
        self._pending = text[line_end:]
        return text[:line_end]

    def pending_line(self) -> str:
        """Return the line that has not ended."""
        text, self._pending = self._pending, ""
        return text


def pieces(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the log in pieces of whole lines, each with its first line's number.

    A very long line comes in pieces, too. Raises FileError for what cannot be read as text.
    """
    with files.raising_file_error(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise FileError(f"{path}: no such log\ngive a log, a folder with logs, or - for standard input") from None
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise FileError(f"{path}: neither a file nor a pipe\ngive the log of a job")
    with files.raising_file_error(path), path.open("rb") as file:
        buffer, number = LineBuffer(), 1
        for piece in _decode(file, path):
            complete = buffer.complete_lines(piece)
            yield number, complete
            number += complete.count("\n")
        yield number, buffer.pending_line()


def _decode(file: BufferedReader, path: Path) -> Iterator[str]:
    """Yield the text in pieces; bytes that cannot be decoded become U+FFFD."""
    chunk = file.read1(READ_BYTES)
    if chunk.startswith(b"\x1f\x8b"):
        raise FileError(f"{path}: compressed with gzip\ngive what `gzip -dc` makes of it")
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while chunk:
        yield decoder.decode(chunk)
        chunk = file.read1(READ_BYTES)
    yield decoder.decode(b"", final=True)


class GrowingFile:
    """A log that is still written, read from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._buffer = LineBuffer()

    def new_lines(self) -> str:
        """Return the lines that were completed since the last look; none where the file is gone."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read(MAX_READ_BYTES)
        except OSError:
            return ""
        self._offset += len(content)
        return self._buffer.complete_lines(self._decoder.decode(content))


class GrowingFolder:
    """The logs below a folder, also those that appear later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: dict[Path, GrowingFile] = {}

    def new_lines(self) -> dict[Path, str]:
        """Return the lines of each log that were completed since the last look."""
        for path in sorted(self._folder.rglob("*")):
            if path not in self._logs and path.is_file():
                self._logs[path] = GrowingFile(path)
        return {path: log.new_lines() for path, log in self._logs.items()}
