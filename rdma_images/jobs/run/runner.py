"""What following a job means, whatever it was submitted with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rdma_images.core.errors import RdmaImagesError
from rdma_images.facts.launchers import Run
from rdma_images.jobs.write.job import Job

Phase = Literal["waiting", "running", "succeeded", "failed"]


@dataclass(frozen=True)
class State:
    """Where a job is. `why` is what its scheduler says of it, in the scheduler's own words."""

    phase: Phase
    why: str = ""

    @property
    def ended(self) -> bool:
        """Nothing of the job will run any more."""
        return self.phase in ("succeeded", "failed")


@dataclass(frozen=True)
class Leg:
    """One run of a job: the job itself, or the same over TCP."""

    job: Job
    run: Run
    files: Path  # the folder of what is submitted
    logs: Path  # a new folder
    tag: str  # of this run only: it marks what this run submitted

    @property
    def file(self) -> Path:
        """What is submitted."""
        return self.files.absolute() / self.run.file

    @property
    def name(self) -> str:
        """A name that no other run has, for launchers in which two jobs cannot have the same."""
        return f"{self.job.name}-{self.tag}"


class Runner(Protocol):
    """Follows one leg. Every method raises CommandError where a program fails or does not answer."""

    def submit(self) -> None:
        """Hand the job to its scheduler."""

    def state(self) -> State:
        """Where the job is now."""

    def collect(self) -> None:
        """Write what each rank or pod printed into the leg's folder of logs."""

    def delete(self) -> None:
        """Remove what this leg submitted and nothing else; returns when it is gone. Right before a submission, too."""


class CommandError(RdmaImagesError):
    """A program that failed, or did not answer in its time. It may do better a moment later."""
