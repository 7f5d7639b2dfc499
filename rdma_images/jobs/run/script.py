"""What runs as long as its job: the script for Docker, sky, and scripts of the user's own."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rdma_images.core.plain import plain
from rdma_images.engine import docker_command
from rdma_images.jobs.run.command import output, start
from rdma_images.jobs.run.runner import Leg, State

TAIL = 4096  # bytes of the output that are looked at for its last line
PATIENCE = 15.0  # seconds for the program to end by itself


class Script:
    """A program that ends when the job has ended; the folder of logs is the one it runs in."""

    def __init__(self, leg: Leg, words: Sequence[str | Path], remove: Sequence[Sequence[str | Path]]) -> None:
        """`words` starts the job, each of `remove` takes away a part of what that leaves, where it is there."""
        self._leg, self._words, self._remove = leg, words, remove
        self._log = leg.logs / "output.log"
        self._process: subprocess.Popen[str] | None = None

    def submit(self) -> None:
        """Start it, with the name of the run in its environment."""
        named = {"RDMA_IMAGES_RUN": self._leg.name}
        self._process = start(self._words, self._leg.logs, self._log, errors=subprocess.STDOUT, environment=named)

    def state(self) -> State:
        """Running until the program has ended; the last line that it printed says what it is at."""
        assert self._process is not None
        code = self._process.poll()
        last = self._last_line()
        if code is None:
            return State("running" if last else "waiting", last)
        return State("failed", f"exit code {code}: {last}") if code else State("succeeded")

    def collect(self) -> None:
        """Everything was written where it belongs."""

    def delete(self) -> None:
        """End the program and what it started here, then remove what it started elsewhere."""
        if self._process and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        for words in self._remove:
            output(words, limit=300)

    def _last_line(self) -> str:
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")
        return next((plain(line.strip())[:200] for line in reversed(lines) if line.strip()), "")


def own(leg: Leg) -> Script:
    """The script of a launcher of the user's own, which removes by itself what it started when it is ended."""
    return Script(leg, ["bash", leg.file], [])


def docker(leg: Leg) -> Script:
    """The script for Docker, on this machine or on several by ssh."""
    remove = docker_command.words("rm", "--force", leg.name)
    hosts = [host for host in leg.job.parameters.get("hosts", "").split(",") if host and leg.job.nodes > 1]
    reached = [["ssh", "-o", "BatchMode=yes", host, *remove] for host in hosts]
    return Script(leg, ["bash", leg.file], reached or [remove])


def skypilot(leg: Leg) -> Script:
    """`sky launch`, which follows the job and ends with it; the cluster is this run's alone."""
    return Script(leg, ["sky", "launch", "--yes", "-c", leg.name, leg.file], [["sky", "down", "--yes", leg.name]])
