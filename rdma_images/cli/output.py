"""Write the answers of tasks: in colour only on a terminal, and ended in good order where nobody reads them."""

import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rdma_images.core import exit_codes
from rdma_images.core.errors import RdmaImagesError

# Columns of output to a file or a pipe: wide, so that the lines of a log are not folded.
WIDTH = 200
UNWRITTEN = "the output cannot be written: {why}\nredirect it to a place with free space"


def show(*values: Any, file: TextIO | None = None) -> None:
    """Print text as it is, and rich tables in colour where `file` is a terminal.

    Raises RdmaImagesError where it cannot be written, BrokenPipeError where its reader has gone.
    """
    stream: TextIO | None = file or sys.stdout
    if stream is None:
        raise RdmaImagesError("standard output is closed\nredirect it to a file or to /dev/null")
    try:
        _write(values, stream)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stream(stream)
        raise RdmaImagesError(UNWRITTEN.format(why=error.strerror)) from None


@contextmanager
def whole_answer() -> Iterator[None]:
    """End invoke's own answers in the block, such as the list of tasks, as `show` ends ours."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        discard_stream(sys.stdout)
        sys.exit(exit_codes.SIGNAL + signal.SIGPIPE)
    except OSError as error:
        if error.filename is not None:
            raise
        discard_stream(sys.stdout)
        sys.exit(UNWRITTEN.format(why=error.strerror))


def replace_unencodable() -> None:
    """Make standard output write "?" for a character that its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def discard_stream(stream: TextIO) -> None:
    """Discard what Python writes to `stream` at its end, so that it does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write(values: Sequence[object], file: TextIO) -> None:
    if all(isinstance(answer, str) for answer in values):
        print(*values, sep="\n", file=file)
        return
    from rich.console import Console  # here, because the import takes 0.1 s and JSON does not need it

    # A value may have brackets and colons: they are neither markup nor emoji.
    if file.isatty():
        console = Console(file=file, markup=False, highlight=False, emoji=False)
        for answer in values:
            console.print(answer, crop=False)
        return
    console = Console(file=io.StringIO(), width=WIDTH, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        for answer in values:
            console.print(answer, crop=False)
    # Tables pad their last column with blanks.
    print(*(line.rstrip() for line in captured.get().splitlines()), sep="\n", file=file)
