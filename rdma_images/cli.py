"""What every task shares: errors as sentences, colours only on a terminal, standard output for answers."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from invoke import Exit, task

from rdma_images.errors import RdmaImagesError, RefusedError

Function = TypeVar("Function", bound=Callable[..., Any])


def verb(**settings: Any) -> Callable[[Function], Any]:
    """invoke's `task`, whose expected errors end the process with their sentence and exit code and no traceback."""

    def decorate(function: Function) -> Any:
        @functools.wraps(function)
        def guarded(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except RdmaImagesError as error:
                raise Exit(str(error), code=error.exit_code) from None
            except BrokenPipeError:
                # Whoever read our output has seen enough (`| head`); what Python still flushes must not fail either.
                sys.stdout = None  # type: ignore[assignment]
                raise Exit(code=141) from None

        return task(**settings)(guarded)

    return decorate


def show(*answers: Any) -> None:
    """Print text or rich tables on standard output, in colour where that is a terminal."""
    if all(isinstance(answer, str) for answer in answers):
        print(*answers, sep="\n")
        return
    from rich.console import Console

    # Without a terminal nothing is cut to eighty columns: a log is searched, not looked at.
    console = Console(width=None if sys.stdout.isatty() else 200, soft_wrap=False)
    for answer in answers:
        console.print(answer)


def progress(line: str) -> None:
    """One plain line on what goes on, on standard error, so that standard output stays the answer."""
    print(line, file=sys.stderr, flush=True)


def changes(pairs: list[str] | None) -> dict[str, str]:
    """`--set axis=value …` as axis -> value."""
    chosen: dict[str, str] = {}
    for pair in pairs or []:
        axis, equals, value = pair.partition("=")
        if not (axis and equals and value):
            raise RefusedError(f"--set {pair}: write axis=value, as in --set pytorch=2.14.1")
        if chosen.get(axis, value) != value:
            raise RefusedError(f"--set gives {axis} twice, {chosen[axis]} and {value}: leave one out")
        chosen[axis] = value
    return chosen
