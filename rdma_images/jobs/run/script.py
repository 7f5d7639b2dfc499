"""Run jobs that last as long as one program: the script for Docker, sky, and the user's own scripts."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rdma_images.core.plain import plain
from rdma_images.engine import docker_command
from rdma_images.jobs.run.command import output, start, terminate_session
from rdma_images.jobs.run.runner import JobState, Submission

TAIL = 4096  # bytes of the output that are looked at for its last line


class Script:
    """A program that ends when the job has ended."""

    def __init__(
        self,
        submission: Submission,
        command: Sequence[str | Path],
        remove: Sequence[Sequence[str | Path]],
        folder: Path | None = None,
    ) -> None:
        """Take the command that starts the job, and the commands that remove what it leaves.

        The program runs in `folder`; without one in the folder of logs.
        """
        self._submission, self._command, self._remove = submission, command, remove
        self._folder = folder or submission.logs
        self._log = submission.logs / "output.log"
        self._process: subprocess.Popen[str] | None = None

    def submit(self) -> None:
        """Start the program, with the name of the run in its environment."""
        environment = {"RDMA_IMAGES_RUN": self._submission.name}
        self._process = start(self._command, self._folder, self._log, errors=subprocess.STDOUT, environment=environment)

    def state(self) -> JobState:
        """Return running until the program has ended, with the last line that it printed."""
        assert self._process is not None
        code = self._process.poll()
        last_line = self._last_line()
        if code is None:
            return JobState("running" if last_line else "waiting", last_line)
        return JobState("failed", f"exit code {code}: {last_line}") if code else JobState("succeeded")

    def collect(self) -> None:
        """Do nothing: the program writes into the folder of logs."""

    def delete(self) -> None:
        """End the program and what it started here, then remove what it started elsewhere."""
        if self._process:
            terminate_session(self._process)
        for command in self._remove:
            output(command, limit=300)

    def _last_line(self) -> str:
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")
        return next((plain(line.strip())[:200] for line in reversed(lines) if line.strip()), "")


def docker(submission: Submission) -> Script:
    """Return the script for Docker, on this machine or on several by ssh."""
    remove = docker_command.command_line("rm", "--force", submission.name)
    hosts = [
        host for host in submission.job.parameters.get("hosts", "").split(",") if host and submission.job.nodes > 1
    ]
    over_ssh = [["ssh", "-o", "BatchMode=yes", host, *remove] for host in hosts]
    return Script(submission, ["bash", submission.file], over_ssh or [remove])


def skypilot(submission: Submission) -> Script:
    """Return `sky launch`, which follows the job and ends with it, in the folder that has the code.

    Cluster or managed job are this run's alone.
    """
    name, file, folder = submission.name, submission.file, submission.files.absolute()
    secrets = [word for variable in submission.job.settings.secrets for word in ("--secret", variable)]
    if submission.job.settings.is_recovered:
        managed = ["sky", "jobs", "launch", "--yes", "-n", name, *secrets, str(file)]
        return Script(submission, managed, [["sky", "jobs", "cancel", "--yes", "-n", name]], folder)
    launch: list[str | Path] = ["sky", "launch", "--yes", "-c", name, *secrets, file]
    return Script(submission, launch, [["sky", "down", "--yes", name]], folder)
