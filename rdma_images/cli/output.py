"""Write the answers of tasks: in colour only on a terminal."""

import io
import os
import sys
from typing import Any, TextIO

from invoke.exceptions import Exit

WIDTH = 10_000  # columns of output to a file or a pipe, whose lines are not folded


def show(*values: Any, file: TextIO | None = None) -> None:
    """Print text as it is, and rich tables in colour where `file`, by default standard output, is a terminal."""
    stream: TextIO = file or sys.stdout or io.StringIO()  # it may be closed
    if all(isinstance(answer, str) for answer in values):
        print(*values, sep="\n", file=stream, flush=True)
        return
    from rich.console import Console  # here, because the import takes 0.1 s and JSON does not need it

    # A value may have brackets and colons: they are neither markup nor emoji.
    plain: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False}
    buffer = None if stream.isatty() else io.StringIO()
    console = Console(file=stream, **plain) if buffer is None else Console(file=buffer, width=WIDTH, **plain)
    for answer in values:
        console.print(answer, crop=False)
    if buffer is not None:
        # Tables pad their last column with blanks.
        print(*(line.rstrip() for line in buffer.getvalue().splitlines()), sep="\n", file=stream, flush=True)


def end_with(code: int) -> None:
    """End the process after its answer, unless the exit code is that of success."""
    if code:
        raise Exit(code=code)


def flush() -> None:
    """Write what was printed. Raises OSError if that fails, after discarding it: Python would try again at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
