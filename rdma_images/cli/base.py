"""What every task shares: errors without tracebacks, colours only on a terminal, results on standard output."""

import functools
import inspect
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO

from invoke.exceptions import Exit
from invoke.tasks import Task

from rdma_images.cli.parsing import Verb
from rdma_images.core import exit_codes, files, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import progress

if TYPE_CHECKING:
    from rdma_images.selection.project import Project

Parameters = ParamSpec("Parameters")

# Columns of output to a file or a pipe: wide, so that the lines of a log are not folded.
WIDTH = 200
UNWRITTEN = "the output cannot be written: {why}\nredirect it to a place with free space"


def verb(
    *examples: str,
    name: str | None = None,
    help: Mapping[str, str] | None = None,
    iterable: Sequence[str] = (),
    positional: Sequence[str] | None = None,
    default: bool = False,
) -> Callable[[Callable[Parameters, None]], Task[Callable[Parameters, None]]]:
    """Make a task of the decorated function.

    An expected error ends the process with its message and exit code, without a traceback.

    `examples` are command lines that `--help` shows, without the command's own name; the rest is invoke's.
    """

    def decorate(function: Callable[Parameters, None]) -> Task[Callable[Parameters, None]]:
        @functools.wraps(function)
        def guarded(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
            try:
                with files.as_file_error():
                    function(*arguments, **options)
            except RdmaImagesError as error:
                if details := error.details():
                    show(details, file=sys.stderr)
                raise Exit(str(error), code=error.exit_code) from None
            except BrokenPipeError:
                # The reader of our output has closed it (`| head`): what Python flushes at its end must not fail.
                _give_up(sys.stdout)
                raise Exit(code=exit_codes.SIGNAL + signal.SIGPIPE) from None
            except KeyboardInterrupt:
                raise Exit(code=exit_codes.SIGNAL + signal.SIGINT) from None

        # invoke joins the lines of a paragraph: each example is a paragraph of its own.
        guarded.__doc__ = "\n\n".join(
            (inspect.cleandoc(function.__doc__ or ""), *(f"Example: {paths.COMMAND} {line}" for line in examples))
        )
        task: Task[Callable[Parameters, None]] = Verb(
            guarded,
            name=name,
            help=dict(help or {}),
            iterable=iterable,
            positional=positional,
            default=default,
            auto_shortflags=False,
        )
        return task

    return decorate


def show(*answers: Any, file: TextIO | None = None) -> None:
    """Print text as it is, and rich tables in colour where `file` (standard output) is a terminal.

    Raises RdmaImagesError where it cannot be written, BrokenPipeError where its reader has gone.
    """
    stream: TextIO | None = file or sys.stdout
    if stream is None:
        raise RdmaImagesError("standard output is closed\nredirect it to a file or to /dev/null")
    try:
        _write(answers, stream)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _give_up(stream)
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
        _give_up(sys.stdout)
        sys.exit(exit_codes.SIGNAL + signal.SIGPIPE)
    except OSError as error:
        if error.filename is not None:
            raise
        _give_up(sys.stdout)
        sys.exit(UNWRITTEN.format(why=error.strerror))


def _give_up(stream: TextIO) -> None:
    """Discard what Python writes to `stream` at its end, so that it does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write(answers: Sequence[object], file: TextIO) -> None:
    if all(isinstance(answer, str) for answer in answers):
        print(*answers, sep="\n", file=file)
        return
    from rich.console import Console  # here, because the import takes 0.1 s and JSON does not need it

    # A value may have brackets and colons: they are neither markup nor emoji.
    if file.isatty():
        console = Console(file=file, markup=False, highlight=False, emoji=False)
        for answer in answers:
            console.print(answer, crop=False)
        return
    console = Console(file=io.StringIO(), width=WIDTH, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        for answer in answers:
            console.print(answer, crop=False)
    # Tables pad their last column with blanks.
    print(*(line.rstrip() for line in captured.get().splitlines()), sep="\n", file=file)


def with_measured_base(loaded: "Project", targets: Sequence[str] | None, onto: str) -> "Project":
    """Return the project with the image of --onto, after measuring all images that its targets are added to."""
    if not onto and not any(target.onto for target in loaded.matrix.targets.values()):
        return loaded
    from rdma_images.validate import measure_onto  # here, because measuring needs an engine

    return measure_onto.measured_project(loaded, targets, onto, progress)
