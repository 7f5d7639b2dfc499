"""Read what a job printed, a file or a pipe of any size, as blocks of lines in bounded memory."""

import codecs
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from rdma_images.core import files

Block = list[str]  # lines without their ends, in the order of the log

READ_BYTES = 1 << 20  # bytes read at once
MAX_LINE_LENGTH = 1 << 16  # characters of a line; a longer one comes in pieces


def blocks(path: Path) -> Iterator[Block]:
    """Yield the log's lines that are not empty.

    Raises RdmaImagesError for what cannot be read as text.
    """
    return (lines(text) for _, text in pieces(path))


def pieces(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the log in pieces of whole lines, each with its first line's number.

    A line ends with a line feed, a carriage return, or MAX_LINE_LENGTH characters. Raises RdmaImagesError as `blocks`.
    """
    with files.as_file_error(path):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise files.FileError(f"{path}: neither a file nor a pipe\ngive the log of a job")
        with path.open("rb") as file:
            yield from _split_at_lines(_decode(file, path))


def _decode(file: BufferedReader, path: Path) -> Iterator[str]:
    """Yield the text in pieces; what is not in the encoding becomes U+FFFD."""
    chunk = file.read1(READ_BYTES)
    if chunk.startswith(b"\x1f\x8b"):
        raise files.FileError(f"{path}: compressed with gzip\ngive what `gzip -dc` makes of it")
    wide = chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8")(errors="replace")
    while chunk:
        yield decoder.decode(chunk)
        chunk = file.read1(READ_BYTES)
    yield decoder.decode(b"", final=True)


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


def _split_at_lines(text: Iterator[str]) -> Iterator[tuple[int, str]]:
    """Yield the pieces cut at the ends of lines, each with the number of its first line."""
    buffer, number = LineBuffer(), 1
    for piece in text:
        complete = buffer.complete_lines(piece)
        yield number, complete
        number += complete.count("\n")
    yield number, buffer.pending_line()


def lines(text: str) -> Block:
    """Return the lines of a piece that are not empty, none longer than MAX_LINE_LENGTH."""
    complete = filter(None, text.splitlines())
    return [line[n : n + MAX_LINE_LENGTH] for line in complete for n in range(0, len(line), MAX_LINE_LENGTH)]
