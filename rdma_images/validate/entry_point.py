"""The variables that the image's entry point sets for the process that it starts, measured by starting it."""

import re
from typing import Any

from docker import DockerClient
from docker.errors import DockerException

from rdma_images.core.plain import plain
from rdma_images.engine import Engine, docker_command
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import EntryPointChanges
from rdma_images.validate import container, transport
from rdma_images.validate.probes import settings

ENTRY_SECONDS = 10.0  # seconds in which an entry point computes nothing and starts nothing, after which it is ended
BUSY_SECONDS = 180.0  # seconds after which one that goes on computing is given up
# The process prints its own words around its environment: they part it from all that the entry point prints.
ECHO_COMMAND = ("cat", "/proc/self/cmdline", "/proc/self/environ", "/proc/self/cmdline")
ENVIRONMENT_MARK = "".join(f"{word}\0" for word in ECHO_COMMAND[1:]).encode()
FILE_VARIABLES = {*settings.FILE_NAMING_VARIABLES, *settings.FILE_VARIABLES}


def record_entry_point(
    client: DockerClient, engine: Engine, image_config: ImageConfig, box: container.SealedContainer
) -> EntryPointChanges | str | None:
    """Return what the entry point changes in the environment.

    It is started as sealed as `box`, and ended where it does nothing for ENTRY_SECONDS seconds.

    Returns:
        A sentence where the entry point does not start what it is given; None where it was still computing.
    """
    api: Any = client.api
    try:
        config = api.inspect_image(image_config.digest).get("Config") or {}
        entry_point = config.get("Entrypoint") or []
        if not entry_point:
            return EntryPointChanges()
        with container.scratch_container(client, image_config.digest, box, command=command(entry_point)) as started:
            line = docker_command.command_line("start", "--attach", str(started.id))
            clock = container.IdleClock(client, started)
            rc, out, err = transport.run_with_limits(
                line, ENTRY_SECONDS, engine.environ(), silence=BUSY_SECONDS, clock=clock
            )
    except DockerException as error:
        return f"the engine could not start the entry point: {plain(str(error))}"
    environment = printed_environment(out)
    if environment is None and rc == transport.TIMED_OUT and clock() < ENTRY_SECONDS:
        return None
    if environment is None:
        return failed_entry_point(rc, out, err)
    return entry_point_changes(environment, image_config.environment)


def command(entry: list[str]) -> list[str]:
    """Return the command for an entry point to start; one word for a shell with -c."""
    return [" ".join(ECHO_COMMAND)] if re.fullmatch(r"-[a-z]*c", entry[-1]) else list(ECHO_COMMAND)


def printed_environment(out: bytes) -> dict[str, str] | None:
    """Return the environment that the command printed; None if it did not start."""
    text, separator, _ = out.partition(ENVIRONMENT_MARK)[2].partition(ENVIRONMENT_MARK)
    if not separator:
        return None
    pairs = (record.partition("=") for record in text.decode("utf-8", "replace").split("\0"))
    return {name: value for name, is_set, value in pairs if is_set}


def entry_point_changes(environment: dict[str, str], image_environment: dict[str, str]) -> EntryPointChanges:
    """Return how `environment` differs from the image's, where that concerns the fabric."""
    relevant = {
        name
        for name in {**environment, **image_environment}
        if settings.VARIABLE.fullmatch(name) or name in FILE_VARIABLES
    }
    variables = {
        name: environment[name][: settings.MAX_VALUE_LENGTH]
        for name in relevant & set(environment)
        if environment[name] != image_environment.get(name)
    }
    return EntryPointChanges(
        given=dict(sorted(variables.items())[: settings.MAX_SETTINGS]),
        removed=sorted(relevant & set(image_environment) - set(environment)),
    )


def failed_entry_point(rc: int, out: bytes, err: bytes) -> str:
    """Return how an entry point ended, or did not end, without starting the command."""
    if rc == transport.TIMED_OUT:
        return f"the entry point did not start another command in {ENTRY_SECONDS:g} s"
    if rc == transport.ENDLESS:
        return "the entry point did not stop printing"
    last_line = plain("".join((err.strip() or out.strip()).decode("utf-8", "replace").splitlines()[-1:])[-200:])
    return f"the entry point ended with {rc} and started no other command{f': {last_line}' if last_line else ''}"
