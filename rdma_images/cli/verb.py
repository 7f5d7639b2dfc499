"""The decorator that makes a function a task, whose errors end it without a traceback."""

import functools
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec

from invoke.exceptions import Exit
from invoke.tasks import Task

from rdma_images.cli import output
from rdma_images.cli.parsing import Verb
from rdma_images.core import exit_codes, files, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import progress

if TYPE_CHECKING:
    from rdma_images.inputs.project import Project


Parameters = ParamSpec("Parameters")
CHOICE = {
    "target": "A target of matrix.yaml; may be given more than once. Without it: every target.",
    "all": "The whole default matrix of the targets instead of their default rows.",
    "set": "axis=value: any value in facts/, also one outside the matrix; may be given more than once.",
}
ONTO = {"onto": "NAME@sha256:…: add the fabric of the one --target to this existing image."}
MANY = ("target", "set")
JSON = {"json": "JSON on standard output, for programs."}
REHEARSE = {"rehearse": "Replace unreachable sources, and only those, by stand-ins; the image cannot be published."}
PUBLISHING = {
    "to": "A registry of registries.yaml; may be given more than once.",
    "sign": "Sign with cosign: a key file, a key service's reference (awskms://…), or keyless (the CI job's identity).",
}
POLICY = {"policy": "The rules for vulnerabilities; by default policy.yaml, where there is one."}


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
                with files.as_file_error(), _ended_in_order():
                    function(*arguments, **options)
            except RdmaImagesError as error:
                if details := error.details():
                    output.show(details, file=sys.stderr)
                raise Exit(str(error), code=error.exit_code) from None
            except BrokenPipeError:
                # The reader of our output has closed it (`| head`): what Python flushes at its end must not fail.
                output.discard_stream(sys.stdout)
                raise Exit(code=exit_codes.SIGNAL + signal.SIGPIPE) from None
            except KeyboardInterrupt as interrupt:
                number = next(iter(interrupt.args), signal.SIGINT)
                raise Exit(code=exit_codes.SIGNAL + number) from None

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


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that nothing is left behind."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    # One that is ignored stays so: nohup ignores a lost terminal.
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def with_measured_base(project: "Project", targets: Sequence[str] | None, onto: str) -> "Project":
    """Return the project with the image of --onto, after measuring what targets are added to."""
    if not onto and not any(target.onto for target in project.matrix.targets.values()):
        return project
    from rdma_images.validate import existing_image  # here, because measuring an image needs an engine

    return existing_image.measured_project(project, targets, onto, progress)
