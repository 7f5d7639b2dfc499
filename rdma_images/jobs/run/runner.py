"""The interface of every way to run a job, and its states."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rdma_images.facts.launchers import RunMethod
from rdma_images.jobs.write.job import Job

JobPhase = Literal["waiting", "running", "succeeded", "failed"]


@dataclass(frozen=True)
class JobState:
    """The state of a job. `why` is its scheduler's explanation, in the scheduler's own words."""

    phase: JobPhase
    why: str = ""


@dataclass(frozen=True)
class Submission:
    """One submission of a job: the job itself, or the same over TCP."""

    job: Job
    method: RunMethod
    files: Path  # the folder of what is submitted
    logs: Path  # a new folder
    tag: str  # of this run only: it marks what this run submitted

    @property
    def file(self) -> Path:
        """Return the file that is submitted."""
        return self.files.absolute() / self.method.file

    @property
    def name(self) -> str:
        """Return a name that no other run has, for launchers where names are unique."""
        return f"{self.job.name}-{self.tag}"


class Runner(Protocol):
    """Run one submission. Methods raise CommandError if a program fails or is silent."""

    def submit(self) -> None:
        """Submit the job to its scheduler."""

    def state(self) -> JobState:
        """Return the job's state."""

    def collect(self) -> None:
        """Write what each rank or pod printed into the submission's folder of logs."""

    def delete(self) -> None:
        """Remove only what was submitted; return when it is gone. Callable before `submit`."""
