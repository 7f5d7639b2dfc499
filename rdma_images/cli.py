"""What every task shares: errors as sentences, colours only on a terminal, standard output for answers."""

import functools
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task, task

from rdma_images.errors import RdmaImagesError

Function = TypeVar("Function", bound=Callable[..., Any])

# How wide an answer is that goes to a file or a pipe, in columns: a log is searched, and wants its lines whole.
WIDTH = 200


class Verb(Task[Any]):
    """invoke's task, that takes an option without its value for the mistake that it is.

    invoke 3.0 lets one that may be given more than once go by without: `--target $NAME`, with NAME empty, would mean
    every target.
    """

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """The task's options, as the parser takes them."""
        arguments = super().get_arguments(ignore_unknown_help)
        for argument in arguments:
            if argument.kind is list:
                argument.raw_value = None
        return arguments


def verb(**settings: Any) -> Callable[[Function], Any]:
    """invoke's `task`, whose expected errors end the process with their sentence and exit code and no traceback."""

    def decorate(function: Function) -> Any:
        @functools.wraps(function)
        def guarded(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except RdmaImagesError as error:
                if details := error.details():
                    show(details, file=sys.stderr)
                raise Exit(str(error), code=error.exit_code) from None
            except BrokenPipeError:
                # Whoever read our output has seen enough (`| head`); what Python flushes at its end must not fail.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise Exit(code=128 + signal.SIGPIPE) from None

        return task(klass=Verb, **settings)(guarded)

    return decorate


def show(*answers: Any, file: TextIO | None = None) -> None:
    """Print text as it is, and rich tables in colour where `file` (standard output) is a terminal."""
    file = file or sys.stdout
    if all(isinstance(answer, str) for answer in answers):
        print(*answers, sep="\n", file=file)
        return
    from rich.console import Console  # 0.1 s, which an answer for a program does not need

    if file.isatty():
        console = Console(file=file, highlight=False)
        for answer in answers:
            console.print(answer)
        return
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False)
    with console.capture() as captured:
        for answer in answers:
            console.print(answer)
    # Tables fill their last column with blanks, which nobody wants in a log.
    print(*(line.rstrip() for line in captured.get().splitlines()), sep="\n", file=file)


def progress(line: str) -> None:
    """One plain line on what goes on, on standard error, so that standard output stays the answer."""
    print(line, file=sys.stderr, flush=True)
