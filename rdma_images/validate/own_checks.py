"""The `checks` of a target: commands of the user's that must succeed in the image."""

import shlex
import time
from collections.abc import Sequence
from functools import partial

from docker import DockerClient

from rdma_images.core.check import Check
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
    checks = []
    with container.sealed_container(client, digest) as box:
        for number, command in enumerate(commands, 1):
            check_id, started = f"own.{number}", time.monotonic()
            process = {"entrypoint": [SHELL], "command": ["-c", command], "environment": {"HOME": HOME}}
            with (
                container.scratch_container(client, digest, box, **process) as own,
                report_waiting(progress, partial(str, f"{check_id}, {plain(command)}")),
            ):
                clock = container.IdleClock(client, own)
                start = docker_command.command_line("start", "--attach", str(own.id))
                rc, out, err = transport.run_with_limits(start, IDLE_SECONDS, engine.environ(), clock=clock)
            by_hand = f"run it by hand: docker run --rm --entrypoint {SHELL} IMAGE -c {shlex.quote(command)}"
            check = Check(
                id=check_id,
                title=command,
                tier="static",
                severity="error",
                outcome="failed" if rc else "passed",
                expected="it ends with 0",
                actual=_ending(rc, out, err),
                fix=by_hand if rc else "",
                source=SOURCE,
                seconds=round(time.monotonic() - started, 3),
            )
            checks.append(check)
    return tuple(checks)


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
