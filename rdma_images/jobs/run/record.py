"""run.json: what a run submitted and its result, so that a later run can remove what this one could not."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, first_line
from rdma_images.core.paths import display_path
from rdma_images.core.progress import Progress
from rdma_images.core.step_files import step_file
from rdma_images.jobs.results import run_files
from rdma_images.jobs.results.result import RunName
from rdma_images.jobs.run.command import CommandError
from rdma_images.jobs.run.runner import Runner

RETRY_SECONDS = 120.0  # in which a removal that fails is tried again
PAUSE_SECONDS = 5.0  # before the next attempt
RUNS = "runs"  # in a job's folder


@dataclass(frozen=True)
class SubmissionRecord:
    """A submission of a run. Times are ISO 8601, UTC."""

    run: RunName
    tag: str
    submitted: str
    ended: str = ""
    ending: Literal["succeeded", "failed", "late", "interrupted", "unreachable", "not submitted", ""] = ""
    why: str = ""
    cleanup: Literal["not removed", "removed", "kept"] = "not removed"


@dataclass(frozen=True)
class RunRecord:
    """The submissions of a run, in their order."""

    submissions: tuple[SubmissionRecord, ...]
    schema: Literal[1] = 1


RUN_FILE = step_file("run.json", "job.run", RunRecord)


def write(folder: Path, entries: Iterable[SubmissionRecord]) -> None:
    """Write the record of the run in `folder`."""
    RUN_FILE.write_file(folder / RUN_FILE.name, RunRecord(tuple(entries)))


def load(folder: Path) -> list[SubmissionRecord]:
    """Return the submissions of the run in `folder`; none where it has no record."""
    record = RUN_FILE.read_file(folder / RUN_FILE.name)
    return list(record.submissions) if record else []


def failures(folder: Path) -> list[str]:
    """Return why submissions of the run in `folder` did not succeed; empty where all did."""
    return [entry.why or entry.ending or "it did not end" for entry in load(folder) if entry.ending != "succeeded"]


def is_run(folder: Path) -> bool:
    """Return whether `folder` is that of a run, and not of a job."""
    return files.exists(folder / RUN_FILE.name)


def remove_submission(runner: Runner, progress: Progress) -> None:
    """Remove what the runner submitted, with retries. Raises CommandError at last."""
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return runner.delete()
        except CommandError as error:
            if time.monotonic() > deadline:
                raise
            progress(f"the job could not be removed, trying again: {first_line(error)}")
            time.sleep(PAUSE_SECONDS)


def remove_leftovers(job_folder: Path, load_runner: Callable[[Path, str], Runner], progress: Progress) -> None:
    """Remove what earlier runs of the job submitted and, being killed, could not remove.

    `load_runner` takes the folder that a run made for a submission, and its tag. Raises CommandError for what is left.
    """
    for run_folder in filter(Path.is_dir, files.list_folder(job_folder / RUNS)):
        entries = load(run_folder)
        for number, entry in enumerate(entries):
            if entry.cleanup != "not removed":
                continue
            progress(f"removing what the run of {run_folder.name} left")
            try:
                source = run_folder / run_files.TCP if entry.run == "tcp" else run_folder
                remove_submission(load_runner(source, entry.tag), progress)
            except RdmaImagesError as error:
                raise CommandError(
                    f"{display_path(run_folder)}: what this run submitted was not removed: {error}\n"
                    f"or remove what has the tag {entry.tag} by hand, and then {RUN_FILE.name} of that folder"
                ) from None
            entries[number] = replace(entry, cleanup="removed")
            write(run_folder, entries)
