"""Remove what a run submitted from the cluster, and what earlier runs of the job could not remove."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rdma_images.core.errors import first_line
from rdma_images.core.progress import Progress
from rdma_images.facts.launchers import RunMethod
from rdma_images.jobs.results import run_folder
from rdma_images.jobs.run import record
from rdma_images.jobs.run.runner import CommandError, Runner, Submission
from rdma_images.jobs.write import folder

RETRY_SECONDS = 120.0  # in which a removal that fails is tried again
PAUSE_SECONDS = 5.0  # before the next attempt


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


def remove_leftovers(
    job_folder: Path, run_method: RunMethod, create_runner: Callable[[Submission], Runner], progress: Progress
) -> None:
    """Remove what earlier runs of the job submitted and, being killed, could not remove."""
    for run_path in record.runs(job_folder):
        entries = record.load(run_path)
        for number, entry in enumerate(entries):
            if entry.cleanup != "not removed":
                continue
            progress(f"removing what the run of {run_path.name} left")
            files = run_path / run_folder.TCP if entry.run == "tcp" else job_folder
            submission = Submission(folder.load(files), run_method, files, run_path / run_folder.LOGS, entry.tag)
            remove_submission(create_runner(submission), progress)
            entries[number] = replace(entry, cleanup="removed")
            record.write(run_path, entries)
