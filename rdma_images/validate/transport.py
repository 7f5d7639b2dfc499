"""The transport into an image, a pod or a host: testinfra's backends, with a limit on time and on what is read."""

import shlex
import subprocess
import time
from collections.abc import Callable
from typing import Any

import testinfra.backend
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.backend.docker import DockerBackend
from testinfra.host import Host

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.engine import docker_command
from rdma_images.validate.probes import tools

MAX_OUTPUT_BYTES = 32 * 1024 * 1024  # of output: an untrusted program may never stop printing
TIMED_OUT = 124  # the exit code of timeout(1)
ENDLESS = -1  # in place of an exit code: it printed too much
NOT_FOUND = (126, 127)  # of a shell, and of `docker exec`, where there is no such command


class LimitedBackend(BaseBackend):
    """A testinfra backend whose commands end.

    They do after `limit` seconds, after `silence` seconds without any output, or after MAX_OUTPUT_BYTES of it.
    """

    limit: float = 120.0
    silence: float | None = None
    environment: dict[str, str] | None = None

    def run_local(self, command: str, *args: str) -> CommandResult:
        """Run `command` on this machine, from where it enters the image.

        The exit code is TIMED_OUT or ENDLESS where it was stopped.
        """
        line = self.quote(command, *args)
        rc, out, err = run_with_limits(shlex.split(line), self.limit, self.environment, self.silence)
        return self.result(rc, line.encode(), out, err)


class ContainerBackend(LimitedBackend, DockerBackend):
    """A container's backend that starts a command itself: an image need not have a shell."""

    def run(self, command: str, *args: str, **_: Any) -> CommandResult:
        """Run `command`, the line of one program, with `args` for its %s."""
        # Filled in after the line is split: to split the text of all probes takes 0.15 s.
        arguments = iter(args)
        words = [next(arguments) if word == "%s" else word for word in shlex.split(command)]
        line = docker_command.command_line("exec", self.name, *words)
        rc, out, err = run_with_limits(line, self.limit, self.environment, self.silence)
        return self.result(rc, command.encode(), out, err)


def run_with_limits(
    command: list[str],
    limit: float,
    environment: dict[str, str] | None,
    silence: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[int, bytes, bytes]:
    """Run `command`, and end it and its children after `limit` seconds.

    Args:
        limit: seconds of `clock` for all of it.
        environment: its variables; None for those of this process.
        silence: seconds without any output after which it is ended, too.
        clock: says how many seconds have passed; asked ten times a second.

    Returns:
        Exit code, output and errors; TIMED_OUT as the exit code of a command that was ended by a limit on seconds,
        ENDLESS of one that printed more than MAX_OUTPUT_BYTES.

    Raises:
        RdmaImagesError: it cannot be started.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError) and "/" not in command[0]
        problem = "is not on the PATH" if is_absent else f"cannot be started: {error.strerror}"
        raise RdmaImagesError(f"{command[0]} {problem}\ninstall it, or measure another host or folder") from None
    limits = _Limits(clock, limit, silence)
    out, err, stopped = tools.read_until_end(process, MAX_OUTPUT_BYTES, limits)
    return limits.reached if stopped else process.returncode, out, err


class _Limits:
    """The limits of a command on this machine: `reached` is the one that ended it."""

    def __init__(self, clock: Callable[[], float], limit: float, silence: float | None) -> None:
        self._clock, self._deadline, self._silence = clock, clock() + limit, silence
        self._printed, self._heard = 0, time.monotonic()
        self.reached = 0

    def __call__(self, printed: int) -> bool:
        """Return whether a command that has `printed` so many bytes until now has to end."""
        now = time.monotonic()
        if printed > self._printed:
            self._printed, self._heard = printed, now
        if printed > MAX_OUTPUT_BYTES:
            self.reached = ENDLESS
        elif self._clock() >= self._deadline or (self._silence and now - self._heard >= self._silence):
            self.reached = TIMED_OUT
        return bool(self.reached)


def host(spec: str, limit: float, environment: dict[str, str] | None = None, silence: float | None = None) -> Host:
    """Return the testinfra host of `spec`.

    That is "docker://id", "kubectl://pod?namespace=n", "ssh://user@name" or "local://". A command has `limit` seconds
    to end, and may print nothing for `silence` seconds. Raises RefusedError for a spec that testinfra does not know.
    """
    name, options = testinfra.backend.parse_hostspec(spec)
    connection = options.pop("connection", None)
    if connection not in ("docker", "podman", "kubectl", "openshift", "ssh", "local"):
        forms = "docker://, kubectl://, openshift://, podman://, ssh://, local://"
        raise RefusedError(f"{spec!r} names no host that can be measured\nuse one of {forms}")
    base = testinfra.backend.get_backend_class(connection)
    settings = {"limit": limit, "environment": environment, "silence": silence}
    bases = (ContainerBackend,) if connection == "docker" else (LimitedBackend, base)
    backend_class = type(f"Limited{base.__name__}", bases, settings)
    arguments: list[Any] = [] if connection == "local" else [name]
    return Host(backend_class(*arguments, **options))
