"""Run the user's own programs: kubectl, sbatch, aws and the like, each ended at its limit."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import plain

COMMAND_SECONDS = 60.0
TERMINATION_SECONDS = 15.0  # seconds for a program to end by itself
MAX_COMPLAINT_LENGTH = 600  # characters of a program's complaint


class ProgramMissingError(RdmaImagesError):
    """A program is not on the PATH: nothing was started."""


class CommandError(RdmaImagesError):
    """A program that failed, or did not answer in its time. It may do better a moment later."""


def output(
    words: Sequence[str | Path],
    stdin: str | None = None,
    limit: float = COMMAND_SECONDS,
    folder: Path | None = None,
    stdout_file: Path | None = None,
) -> str:
    """Run a program and return what it prints, or "" where it prints into `stdout_file`.

    It runs in a session of its own, so that Ctrl-C does not reach it: a submission is never left half done.

    Raises:
        CommandError: The program failed; the error has its own words.
        ProgramMissingError: The program is not on the PATH.
    """
    with start(words, folder, stdout_file, subprocess.PIPE if stdin is not None else subprocess.DEVNULL) as process:
        try:
            stdout, stderr = process.communicate(stdin, limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise CommandError(
                f"{_short_command(words)}: no answer in {limit:.0f} s\ncheck that the cluster answers"
            ) from None
    if process.returncode:
        complaint = stderr.strip() or (stdout or "").strip() or f"exit code {process.returncode}"
        raise CommandError(f"{_short_command(words)}: {plain(complaint)[-MAX_COMPLAINT_LENGTH:]}")
    return stdout or ""


def start(
    words: Sequence[str | Path],
    folder: Path | None,
    stdout_file: Path | None,
    stdin: int = subprocess.DEVNULL,
    errors: int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.Popen[str]":
    """Start a program in a session of its own. Raises ProgramMissingError if it is missing."""
    stdout = stdout_file.open("wb") if stdout_file else None
    try:
        return subprocess.Popen(
            [str(word) for word in words],
            stdin=stdin,
            stdout=stdout or subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if error.filename != str(words[0]):
            raise
        raise ProgramMissingError(
            f"{words[0]} is not on the PATH, and this job is submitted with it\n"
            "install it, or submit the job elsewhere as its README.md says; then `verdict` reads its logs"
        ) from None
    finally:
        if stdout:
            stdout.close()


def terminate_session(process: "subprocess.Popen[Any]") -> None:
    """End a program and what it started, by signals to its session, until it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERMINATION_SECONDS)


def _short_command(words: Sequence[str | Path]) -> str:
    """Return a command in short, for messages: the program and its subcommand."""
    return " ".join(str(word) for word in words if not str(word).startswith("-"))[:120]
