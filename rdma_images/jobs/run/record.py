"""run.json: what a run submitted and its result, so that a later run can remove what this one could not."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rdma_images.core import files
from rdma_images.core.step_files import step_file
from rdma_images.jobs.results.result import RunName

RUNS = "runs"  # in a job's folder


@dataclass(frozen=True)
class SubmissionRecord:
    """A submission of a run. Times are ISO 8601, UTC."""

    run: RunName
    tag: str
    submitted: str
    ended: str = ""
    how: Literal["succeeded", "failed", "late", "interrupted", "unreachable", "not submitted", ""] = ""
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
    RUN_FILE.save(folder / RUN_FILE.name, RunRecord(tuple(entries)))


def load(folder: Path) -> list[SubmissionRecord]:
    """Return the submissions of the run in `folder`; none where it has no record."""
    record = RUN_FILE.load(folder / RUN_FILE.name)
    return list(record.submissions) if record else []


def is_run(folder: Path) -> bool:
    """Return whether `folder` is that of a run, and not of a job."""
    return files.exists(folder / RUN_FILE.name)


def runs(folder: Path) -> list[Path]:
    """Return the folders of all runs of the job in `folder`, the oldest first."""
    return [run for run in files.list_folder(folder / RUNS) if run.is_dir()]
