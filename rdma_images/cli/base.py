"""What makes a function a task, whose errors end it without a traceback, and the project that tasks share."""

import functools
import inspect
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ParamSpec

from invoke.exceptions import Exit
from invoke.tasks import Task

from rdma_images.cli import output
from rdma_images.cli.parsing import Verb
from rdma_images.core import exit_codes, files, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import progress

if TYPE_CHECKING:
    from rdma_images.selection.project import Project

Parameters = ParamSpec("Parameters")


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
                    output.show(details, file=sys.stderr)
                raise Exit(str(error), code=error.exit_code) from None
            except BrokenPipeError:
                # The reader of our output has closed it (`| head`): what Python flushes at its end must not fail.
                output.give_up(sys.stdout)
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


def with_measured_base(loaded: "Project", targets: Sequence[str] | None, onto: str) -> "Project":
    """Return the project with the image of --onto, after measuring all images that its targets are added to."""
    if not onto and not any(target.onto for target in loaded.matrix.targets.values()):
        return loaded
    from rdma_images.validate import measure_onto  # here, because measuring needs an engine

    return measure_onto.measured_project(loaded, targets, onto, progress)
