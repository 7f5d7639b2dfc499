"""The `checks` of a target: commands of the user's that must succeed in the image."""

import shlex
import time
from collections.abc import Sequence

from docker import DockerClient
from docker.errors import DockerException

from rdma_images.core.check import Check
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import plain
from rdma_images.core.progress import Progress, report_waiting
from rdma_images.engine import Engine, docker_command
from rdma_images.validate import container, transport

SOURCE = "matrix.yaml, the target's checks"
IDLE_SECONDS = 60.0  # seconds without computing after which a command is stopped
SHELL, HOME = "/bin/sh", container.SCRATCH_FOLDERS[0]
SHOWN_LINES = 5  # of what a failed command printed last
SHOWN_CHARACTERS = 600


def run(
    client: DockerClient, engine: Engine, digest: str, commands: Sequence[str], progress: Progress
) -> tuple[Check, ...]:
    """Return how each of `commands`, lines for a shell, ends in an image: the checks own.1, own.2 and so on.

    Each has a sealed container of its own: the image's user, variables and working directory, no entry point, no
    network, and nothing to write to but memory. It may take as long as it computes. Raises RdmaImagesError where the
    engine refuses to run the image.
    """
    if not commands:
        return ()
    with container.sealed_container(client, digest) as box:
        return tuple(
            _run(client, engine, digest, box, f"own.{number}", command, progress)
            for number, command in enumerate(commands, 1)
        )


def _run(
    client: DockerClient,
    engine: Engine,
    digest: str,
    box: container.SealedContainer,
    check_id: str,
    command: str,
    progress: Progress,
) -> Check:
    """Return how one command ends."""
    started = time.monotonic()
    try:
        process = {"entrypoint": [SHELL], "command": ["-c", command], "environment": {"HOME": HOME}}
        with container.scratch_container(client, digest, box, **process) as own:
            clock = container.IdleClock(client, own)
            line = docker_command.command_line("start", "--attach", str(own.id))
            with report_waiting(progress, lambda: f"{check_id}, {plain(command)}"):
                rc, out, err = transport.run_with_limits(line, IDLE_SECONDS, engine.environ(), clock=clock)
    except DockerException as error:
        raise RdmaImagesError(
            f"{check_id}: the engine could not run {plain(command)}: {plain(str(error))}\n"
            "see that `docker run` starts the image"
        ) from None
    return Check(
        id=check_id,
        title=command,
        tier="static",
        severity="error",
        outcome="failed" if rc else "passed",
        expected="it ends with 0",
        actual=_ending(rc, out, err),
        fix=f"run it by hand: docker run --rm --entrypoint /bin/sh IMAGE -c {shlex.quote(command)}" if rc else "",
        source=SOURCE,
        seconds=round(time.monotonic() - started, 3),
    )


def _ending(rc: int, out: bytes, err: bytes) -> str:
    """Return how a command ended, with the last lines that a failed one printed."""
    if not rc:
        return "it did"
    how = {
        transport.TIMED_OUT: f"it was stopped: it did nothing for {IDLE_SECONDS:g} s",
        transport.ENDLESS: f"it was stopped: it printed more than {transport.MAX_OUTPUT_BYTES} bytes",
    }.get(rc, f"it ended with {rc}")
    printed = (err.strip() or out.strip()).decode("utf-8", "replace").splitlines()[-SHOWN_LINES:]
    last = " / ".join(line.strip() for line in printed)[-SHOWN_CHARACTERS:]
    return f"{how}: {last}" if last else how
