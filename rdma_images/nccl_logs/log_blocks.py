"""What a job printed, a file or a pipe of any size, as blocks of lines in bounded memory."""

import codecs
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError

Block = list[str]  # lines without their ends, in the order of the log

BLOCK = 1 << 20  # bytes read at once
LONGEST = 1 << 16  # characters of a line; a longer one comes in pieces


def blocks(path: Path) -> Iterator[Block]:
    """The lines of the log at `path` that are not empty. Raises RdmaImagesError for what cannot be read as text."""
    return (lines(text) for _, text in pieces(path))


def pieces(path: Path) -> Iterator[tuple[int, str]]:
    """The text of the log at `path` in pieces of whole lines, each with the number, from 1, of the line it begins in.

    A line ends with a line feed, a carriage return, or LONGEST characters. Raises RdmaImagesError as `blocks` does.
    """
    with files.as_file_error(path):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise RdmaImagesError(f"{path}: neither a file nor a pipe\ngive the log of a job")
        with path.open("rb") as file:
            yield from _whole_lines(_text(file, path))


def _text(file: BinaryIO, path: Path) -> Iterator[str]:
    """The text in pieces; what is not in the encoding becomes U+FFFD."""
    data = file.read(BLOCK)
    if data.startswith(b"\x1f\x8b"):
        raise RdmaImagesError(f"{path}: compressed with gzip\ngive what `gzip -dc` makes of it")
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8")(errors="replace")
    while data:
        yield decoder.decode(data)
        data = file.read(BLOCK)
    yield decoder.decode(b"", final=True)


def _whole_lines(text: Iterator[str]) -> Iterator[tuple[int, str]]:
    """The pieces cut at the ends of lines; what begins at the end of one piece ends in the next."""
    begun, number = "", 1
    for piece in text:
        begun += piece
        ended = max(begun.rfind("\n"), begun.rfind("\r")) + 1
        if not ended and len(begun) > LONGEST:
            ended = len(begun)
        yield number, begun[:ended]
        number += begun.count("\n", 0, ended)
        begun = begun[ended:]
    yield number, begun


def lines(text: str) -> Block:
    """The lines of a piece that are not empty, none longer than LONGEST."""
    whole = filter(None, text.splitlines())
    return [line[n : n + LONGEST] for line in whole for n in range(0, len(line), LONGEST)]
