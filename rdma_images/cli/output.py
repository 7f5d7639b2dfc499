"""Write the answers of tasks: in colour only on a terminal, and ended in good order where nobody reads them."""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rdma_images.core.errors import RdmaImagesError

# Columns of output to a file or a pipe: wide, so that the lines of a log are not folded.
WIDTH = 200


def show(*values: Any, file: TextIO | None = None) -> None:
    """Print text as it is, and rich tables in colour where `file` is a terminal.

    Raises RdmaImagesError where it cannot be written, BrokenPipeError where its reader has gone.
    """
    stream: TextIO | None = file or sys.stdout
    if stream is None:
        raise RdmaImagesError("standard output is closed\nredirect it to a file or to /dev/null")
    with written_out(stream):
        _write(values, stream)


@contextmanager
def written_out(stream: TextIO) -> Iterator[None]:
    """Write what the block prints to `stream` before it ends.

    Raises RdmaImagesError where it cannot be written, BrokenPipeError where its reader has gone.
    """
    try:
        try:
            yield
        finally:
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:  # about a file that the block reads
            raise
        discard_stream(stream)
        message = f"the output cannot be written: {error.strerror}\nredirect it to a place with free space"
        raise RdmaImagesError(message) from None


def discard_stream(stream: TextIO) -> None:
    """Discard what Python writes to `stream` at its end, so that it does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write(values: Sequence[object], file: TextIO) -> None:
    if all(isinstance(answer, str) for answer in values):
        print(*values, sep="\n", file=file)
        return
    from rich.console import Console  # here, because the import takes 0.1 s and JSON does not need it

    # A value may have brackets and colons: they are neither markup nor emoji.
    plain: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False}
    buffer = None if file.isatty() else io.StringIO()
    console = Console(file=file, **plain) if buffer is None else Console(file=buffer, width=WIDTH, **plain)
    for answer in values:
        console.print(answer, crop=False)
    if buffer is not None:
        # Tables pad their last column with blanks.
        print(*(line.rstrip() for line in buffer.getvalue().splitlines()), sep="\n", file=file)
