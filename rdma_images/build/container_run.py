"""Run one container in the foreground: its `docker run`, and becoming that command."""

import csv
import io
import json
import os
import re
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import LABEL_PREFIX, RunSetting
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress
from rdma_images.engine import docker_command
from rdma_images.engine.docker_command import Engine
from rdma_images.facts import Facts
from rdma_images.plan import image_settings

LABEL = f"{LABEL_PREFIX}.run"  # of the containers that are started here
GPUS = re.compile(r"all|none|[1-9][0-9]*|device=[\w.:-]+(,[\w.:-]+)*")
GPU_DEVICE = Path("/dev/nvidiactl")
GPU_HOOK = "nvidia-container-runtime-hook"  # of NVIDIA's container toolkit, which an engine looks for on its PATH
PROC = Path("/proc")
CAP_SYS_RESOURCE = 24  # linux/capability.h
SHELL = ("-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")


@dataclass(frozen=True)
class ContainerOptions:
    """The options of a user beside what the image needs, as typed."""

    mounts: Sequence[str] = ()  # "HOST:CONTAINER[:ro]"
    variables: Sequence[str] = ()  # "NAME=VALUE", or "NAME" for the value of this environment
    gpus: str = ""  # "all", "none", "2" or "device=0,1"; empty for all where the machine has any
    devices: Sequence[str] = ()  # as docker's --device
    shell: bool = False  # a shell in place of the image's entry point


@dataclass(frozen=True)
class DockerHost:
    """What an engine's machine can give to containers; `missing` has reasons by setting."""

    network: str = ""  # the network where the engine's default one reaches nothing
    init: bool = True  # whether the engine can start its own first process, which passes signals on
    is_local: bool = True
    missing: Mapping[str, str] = field(default_factory=dict)


def command(ref: str, settings: Sequence[RunSetting]) -> list[str]:
    """Return the `docker run` of an image on a machine that has all that its settings ask for."""
    return docker_command.command_line("run", *(setting.docker for setting in _for_docker(settings)), ref)


def command_on_host(
    ref: str,
    settings: Sequence[RunSetting],
    host: DockerHost,
    options: ContainerOptions,
    words: Sequence[str] = (),
    terminal: bool = False,
) -> list[str]:
    """Return the `docker run` of an image on `host`, with `words` as its command.

    Args:
        ref: The image's name in the engine.
        settings: What the image asks for; what `host` lacks is left out.
        words: The command and its arguments; empty for the image's own.
        terminal: Whether the container gets a terminal; standard input is passed on either way.

    Raises:
        RefusedError: An option is not of its form, or names what is not there.
    """
    usable = [setting for setting in _for_docker(settings) if setting.name not in host.missing]
    if options.gpus:
        usable = [setting for setting in usable if setting.name != "gpus"]
    run, *docker_options = command(ref, usable)[1:-1]
    arguments = [run, "--rm", "--interactive", "--pull=never", f"--label={LABEL}={ref}"]
    if terminal:
        arguments.append("--tty")
    if host.init:
        arguments.append("--init")
    arguments += docker_options
    if host.network and not any(argument.startswith("--network=") for argument in docker_options):
        arguments.append(f"--network={host.network}")
    arguments += _gpus(options.gpus)
    arguments += [f"--device={device}" for device in options.devices]
    arguments += [f"--mount={_mount(mount, host.is_local)}" for mount in options.mounts]
    arguments += [f"--env={_variable(variable)}" for variable in options.variables]
    if options.shell:
        arguments.append("--entrypoint=/bin/sh")
        words = SHELL
    return docker_command.command_line(*arguments, ref, *words)


def describe_omitted(settings: Sequence[RunSetting], host: DockerHost, options: ContainerOptions) -> str:
    """Return what `host` cannot give of the image's needs, with reasons; "" for nothing."""
    return ", ".join(
        f"{setting.docker} ({host.missing[setting.name]})"
        for setting in _for_docker(settings)
        if setting.name in host.missing and not (setting.name == "gpus" and options.gpus)
    )


def measure_host(engine: Engine, settings: Sequence[RunSetting]) -> DockerHost:
    """Return which of `settings` the engine's machine can satisfy.

    If the engine is on another machine, only its runtimes are known: nothing else there can be seen.
    """
    info = json.loads(docker_command.output(engine, "info", "--format", "{{json .}}"))
    is_local = engine.kind == "private" or info.get("Name") == socket.gethostname()
    reasons = {setting.name: _obstacle(setting, engine, info, is_local) for setting in _for_docker(settings)}
    return DockerHost(
        network="host" if engine.build_network == "host" else "",
        init=info.get("InitCommit", {}).get("ID") != "N/A",
        is_local=is_local,
        missing={name: reason for name, reason in reasons.items() if reason},
    )


def image_config(engine: Engine, ref: str) -> Mapping[str, Any] | None:
    """Return the config of the image `ref`, or None. Raises RdmaImagesError without answer."""
    inspected = docker_command.run(engine, "image", "inspect", "--format", "{{json .Config}}", ref)
    if inspected.returncode == 0:
        config: Mapping[str, Any] = json.loads(inspected.stdout) or {}
        return config
    if "no such image" in inspected.stderr.lower():
        return None
    raise RdmaImagesError(
        f"the engine {engine.name} did not describe {ref}: {inspected.stderr.strip()}\n"
        "see with `docker info` that it answers"
    )


def run_image(
    engine: Engine, ref: str, words: Sequence[str], options: ContainerOptions, facts: Facts, progress: Progress
) -> NoReturn:
    """Become the container of the image `ref`, with what it asks for as far as this machine has it.

    Raises:
        RefusedError: The engine does not have the image, or nothing says what to run in it.
    """
    config = image_config(engine, ref)
    if config is None:
        raise docker_command.missing_image(engine, ref)
    if not (words or options.shell or config.get("Cmd") or config.get("Entrypoint")):
        raise RefusedError(f"{ref} has no command of its own\nwrite one after --, or add --shell")
    settings = image_settings.settings_by_label(config.get("Labels") or {}, facts)
    host = measure_host(engine, settings)
    if missing := describe_omitted(settings, host, options):
        progress(f"runs without {missing}")
    exec_docker(engine, command_on_host(ref, settings, host, options, words, has_terminal()))


def has_terminal() -> bool:
    """Return whether standard input and output are both a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def exec_docker(engine: Engine, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by docker: exit code and signals are the container's.

    SIGKILL ends the command alone: the container goes on until its own command ends, and is removed then.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a new program would, too
    os.execvpe(arguments[0], list(arguments), engine.environ())


def _for_docker(settings: Sequence[RunSetting]) -> list[RunSetting]:
    """Return the settings with an option of `docker run`, without jobs' variables."""
    return [setting for setting in settings if setting.docker and not setting.name.startswith("variable.")]


def _obstacle(setting: RunSetting, engine: Engine, info: Mapping[str, Any], is_local: bool) -> str:
    """Return why the machine cannot give what a setting asks for; "" where it can."""
    if setting.name == "gpus":
        return _gpu_obstacle(info, is_local)
    if setting.name == "devices":
        if not is_local:
            return f"the engine is on another machine; give --device {setting.value} if that has it"
        return "" if Path(setting.value).exists() else "this machine has none"
    if setting.name == "ulimits":
        if any("rootless" in option for option in info.get("SecurityOptions") or ()):
            return "the engine is rootless, and may not raise a limit"
        if is_local and not _may_raise_limits(engine.host):
            return "the engine has no CAP_SYS_RESOURCE, and may not raise a limit"
    return ""


def _gpu_obstacle(info: Mapping[str, Any], is_local: bool) -> str:
    if is_local and not GPU_DEVICE.exists():
        return "this machine has no NVIDIA GPU"
    if "nvidia" in (info.get("Runtimes") or ()) or (is_local and shutil.which(GPU_HOOK)):
        return ""
    return "the engine has no NVIDIA runtime: install nvidia-container-toolkit"


def _may_raise_limits(address: str) -> bool:
    """Return whether containers of the engine on this machine may lock memory without a limit.

    Its process is the one that listens at its socket; one that cannot be looked at is taken to have the right.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address.removeprefix("unix://"))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        process = PROC / str(struct.unpack("3i", credentials)[0])
        status, limits = (process / "status").read_text(), (process / "limits").read_text()
    except OSError:
        return True
    if re.search(r"^Max locked memory +\S+ +unlimited", limits, re.MULTILINE):
        return True
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return effective is None or bool(int(effective[1], 16) >> CAP_SYS_RESOURCE & 1)


def _gpus(value: str) -> list[str]:
    if value and not GPUS.fullmatch(value):
        raise RefusedError(f"--gpus {value}: not a choice of GPUs\nwrite all, none, how many, or device=0,1")
    return [] if value in ("", "none") else [f"--gpus={_fields(value)}"]


def _mount(value: str, is_local: bool) -> str:
    """Return docker's --mount for "HOST:CONTAINER[:ro]".

    A folder on the host is not made, as --volume would.
    """
    host, _, destination = value.partition(":")
    container, _, mode = destination.partition(":")
    if not host or not container.startswith("/") or mode not in ("", "ro", "rw"):
        raise RefusedError(
            f"--mount {value}: not of the form HOST:CONTAINER[:ro]\nwrite --mount HOST:CONTAINER, as in ./src:/src:ro"
        )
    source = Path(host).expanduser().absolute() if is_local else Path(host)
    if is_local and not source.exists():
        raise RefusedError(f"--mount {value}: there is no {source}\nmake it, or name another file or folder")
    return _fields("type=bind", f"source={source}", f"target={container}", *(["readonly"] if mode == "ro" else []))


def _variable(value: str) -> str:
    """Return docker's --env.

    A value of this environment is read by docker, so that it is on no command line.
    """
    name, equals, _ = value.partition("=")
    if not name or (not equals and name not in os.environ):
        reason = "it is not set here" if name else "it has no name"
        raise RefusedError(f"--env {value}: {reason}\nwrite --env NAME=VALUE, or set NAME before `{COMMAND}`")
    return value


def _fields(*values: str) -> str:
    """Return values as docker's lists have them: one line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
