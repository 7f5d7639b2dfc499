"""The user's own programs: kubectl, sbatch, aws and the like, each ended at its limit."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import plain
from rdma_images.jobs.run.runner import CommandError

LIMIT = 60.0  # seconds
LONGEST = 600  # characters of a program's complaint


def output(
    words: Sequence[str | Path],
    given: str | None = None,
    limit: float = LIMIT,
    folder: Path | None = None,
    to: Path | None = None,
) -> str:
    """What a program prints, or "" where it prints into the file `to`; `given` is its standard input.

    It is in a session of its own, so that Ctrl-C does not reach it: a submission is never left half done.
    Raises CommandError with the program's own words where it fails, RdmaImagesError where it is not there.
    """
    with start(words, folder, to, subprocess.PIPE if given is not None else subprocess.DEVNULL) as process:
        try:
            out, err = process.communicate(given, limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise CommandError(f"{_said(words)}: no answer in {limit:.0f} s\ncheck that the cluster answers") from None
    if process.returncode:
        said = err.strip() or (out or "").strip() or f"exit code {process.returncode}"
        raise CommandError(f"{_said(words)}: {plain(said)[-LONGEST:]}")
    return out or ""


def start(
    words: Sequence[str | Path],
    folder: Path | None,
    to: Path | None,
    given: int = subprocess.DEVNULL,
    errors: int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.Popen[str]":
    """Start a program in a session of its own. Raises RdmaImagesError where it is not on the PATH."""
    out = to.open("wb") if to else None
    try:
        return subprocess.Popen(
            [str(word) for word in words],
            stdin=given,
            stdout=out or subprocess.PIPE,
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
        raise RdmaImagesError(
            f"{words[0]} is not on the PATH, and this job is submitted with it\n"
            "install it, or submit the job elsewhere as its README.md says; then `job.result` reads its logs"
        ) from None
    finally:
        if out:
            out.close()


def _said(words: Sequence[str | Path]) -> str:
    """A command in short, for messages: the program and what it was to do."""
    return " ".join(str(word) for word in words if not str(word).startswith("-"))[:120]
