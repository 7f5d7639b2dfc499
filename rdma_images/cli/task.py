"""What makes a function a task: its options, from the annotations of its parameters, and an end in good order."""

import functools
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from invoke.exceptions import Exit
from invoke.tasks import Task as InvokeTask

from rdma_images.cli import output
from rdma_images.core import exit_codes, files
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.progress import progress
from rdma_images.inputs import project

if TYPE_CHECKING:
    from rdma_images.core.image import ExistingImage

# Options of several tasks: the type of the value, and what --help says.
Targets = Annotated[Sequence[str], "A target of matrix.yaml, by default every one."]
All = Annotated[bool, "The whole default matrix of the targets instead of their default rows."]
Changes = Annotated[
    Sequence[str],
    "AXIS=VALUE | A version or property, as nccl=2.32.3: any value in facts/, also one outside the matrix.",
]
Onto = Annotated[str, "NAME@sha256:… | Add the fabric of the one --target to this existing image."]
Json = Annotated[bool, "JSON on standard output, for programs."]
Rehearse = Annotated[bool, "Replace unreachable sources, and only those, by stand-ins; the image cannot be published."]
Policy = Annotated[str, "FILE | The rules for vulnerabilities; by default policy.yaml, where there is one."]
# The short form of an option, the same in every task.
SHORT = {"target": "t", "all": "a", "set": "s", "json": "j", "rehearse": "r", "image": "i"}


class Task(InvokeTask[Any]):
    """invoke's task, whose parameters are annotated with the type and the help of their options."""

    examples: Sequence[str] = ()
    takes_command = False  # after a lone --

    def argspec(self, body: Callable[..., None]) -> inspect.Signature:
        """Return all parameters: our functions do without invoke's context."""
        return inspect.signature(body)

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        """Return how invoke is to make the option of a parameter; one that is not keyword-only may lack its name."""
        parameter = self.argspec(self.body).parameters[name]
        kind, text = get_args(parameter.annotation)
        options = super().arg_opts(name, default, taken_names)
        options |= {"kind": list if get_origin(kind) is Sequence else kind, "help": text, "default": default}
        options["positional"] &= parameter.kind is not parameter.KEYWORD_ONLY
        options["names"] += [SHORT[name]] if name in SHORT else []
        return options


def task(*examples: str, name: str | None = None, default: bool = False) -> Callable[[Callable[..., None]], Task]:
    """Make a task of the decorated function, with an option for each parameter; those without a default must be given.

    Args:
        examples: Command lines that `--help` shows, without the command's own name. With ` -- ` in one of them, the
            task takes a command.
        name: The task's name with its group, as "job.run"; by default the function's.
        default: Whether the task's group stands for it, as `job` does for `job.job`.
    """

    def decorate(function: Callable[..., None]) -> Task:
        @functools.wraps(function)
        def guarded(*_: Any, **options: Any) -> None:  # invoke's context comes first
            with ended_in_order():
                function(**options)

        made = Task(guarded, name=name, default=default, auto_shortflags=False)
        made.examples, made.takes_command = examples, any(" -- " in example for example in examples)
        return made

    return decorate


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Raise Exit, which ends the process without a traceback, for an expected error, a signal, and a gone reader."""
    try:
        with files.raising_file_error(), _signals_as_interrupts():
            try:
                yield
            finally:
                output.flush()
    except RdmaImagesError as error:
        if details := error.details():
            output.show(details, file=sys.stderr)
        raise Exit(str(error), code=error.exit_code) from None
    except BrokenPipeError:
        raise Exit(code=exit_codes.SIGNAL + signal.SIGPIPE) from None
    except KeyboardInterrupt as interrupt:
        number = next(iter(interrupt.args), signal.SIGINT)
        raise Exit(code=exit_codes.SIGNAL + number) from None


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
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


def refuse_beside(option: str, others: Mapping[str, object]) -> None:
    """Raise RefusedError where one of the other options is given that would have no effect beside this one."""
    if given := ", ".join(name for name, value in others.items() if value):
        raise RefusedError(f"{option} and {given} do not go together\nleave one out")


def load_project(targets: Sequence[str] = (), onto: str = "", measures: bool = True) -> project.Project:
    """Return the project, whose one target is added to the image of --onto.

    Its plans measure the images that targets are added to; without `measures`, they leave out what was not measured.
    """

    def measure_base(ref: str) -> "ExistingImage":
        from rdma_images.validate import existing_image  # here, because measuring an image needs an engine

        return existing_image.measure_base_image(ref, progress)

    loaded = project.load(measure_base if measures else None)
    if onto:
        from rdma_images.plan.onto import matrix_onto

        loaded = replace(loaded, matrix=matrix_onto(loaded.matrix, targets, onto))
    return loaded
