"""A Docker that is there already: DOCKER_HOST, the current context, the default socket."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import docker_command
from rdma_images.engine.docker_command import Engine
from rdma_images.engine.layout import layout

# The oldest that are taken. The project's own engine has 26.1 and 0.13, so what those lack is not relied on either.
DOCKER = (24, 0)
BUILDX = (0, 12)
SSH = "ssh:// is not supported"
SOCKET_DENIED = "this user may not open Docker's socket"
FIXES = {  # by reason, where there is more to say than that it is to be fixed
    SSH: "forward its socket with `ssh -N -L /tmp/docker.sock:/var/run/docker.sock USER@HOST`, and set "
    "DOCKER_HOST=unix:///tmp/docker.sock",
    SOCKET_DENIED: "add this user to the socket's group, as with `sudo usermod -aG docker USER`, and log in again",
}
DEFAULT_SOCKET = Path("/var/run/docker.sock")


def find_engine() -> tuple[Engine | None, str]:
    """Return the user's usable Docker, or None and the reason, as half a sentence.

    Raises RdmaImagesError where the user chose one (DOCKER_HOST, a context) that cannot be used: nobody else's
    engine is taken instead without a word.
    """
    if os.environ.get("DOCKER_HOST") == layout().host:
        return None, "DOCKER_HOST names the private engine"
    variable = _chosen_host()
    if variable is None and not DEFAULT_SOCKET.exists():
        return None, f"there is no Docker at {DEFAULT_SOCKET}"
    if shutil.which("docker") is None:
        reason = "there is no docker command on PATH"
    else:
        engine, reason = inspect_engine()
        if engine:
            return engine, ""
    if variable:
        alternative = f"unset {variable}" if variable in os.environ else "`docker context use default`"
        fix = f"{FIXES.get(reason, 'fix that')}, or {alternative}"
        raise RdmaImagesError(f"{variable} names an engine that cannot be used: {reason}\n{fix}")
    return None, reason


def version_problem(name: str, version: str, minimum: tuple[int, int]) -> str | None:
    """Return why `version` of `name` does not do, as half a sentence; None where it does."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) >= minimum:
        return None
    return f"{name} is {version}, and {minimum[0]}.{minimum[1]} or later is needed"


def _chosen_host() -> str | None:
    """Return what overrides the default engine, DOCKER_HOST or a docker context; None for nothing."""
    if os.environ.get("DOCKER_HOST"):
        return "DOCKER_HOST"
    if os.environ.get("DOCKER_CONTEXT", "default") != "default":
        return "DOCKER_CONTEXT"
    try:
        folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
        current = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("currentContext", "default")
    except (OSError, ValueError, AttributeError, RuntimeError):  # RuntimeError: a user without a home folder
        return None
    return f"the docker context {current!r}" if current not in ("", "default") else None


def _docker(*arguments: str) -> tuple[str, str]:
    """Return standard output and standard error of `docker`."""
    try:
        result = docker_command.run(None, *arguments, timeout=10)
    except subprocess.TimeoutExpired:
        return "", "it did not answer within 10 s"
    complaint = result.stderr.strip().splitlines()[:1] if result.returncode else []
    return ("" if result.returncode else result.stdout.strip()), " ".join(complaint)


def inspect_engine() -> tuple[Engine | None, str]:
    """Return the engine of the docker client as it is set up, or why it cannot be used."""
    host, complaint = _docker("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")  # asks no engine
    if not host:
        return None, complaint
    if host.startswith("ssh://"):
        return None, SSH
    output, complaint = _docker("info", "--format", "{{json .}}")
    info = json.loads(output) if output else {}
    if not info.get("ServerVersion"):
        reason = complaint or " ".join(" ".join(info.get("ServerErrors") or ()).split()) or "it does not answer"
        return None, SOCKET_DENIED if "permission denied while trying to connect" in reason else reason
    plugins = {plugin["Name"]: plugin for plugin in info.get("ClientInfo", {}).get("Plugins") or ()}
    buildx = plugins.get("buildx", {}).get("Version", "")
    problem = version_problem("Docker", info["ServerVersion"], DOCKER)
    problem = problem or (version_problem("buildx", buildx, BUILDX) if buildx else "the docker command has no buildx")
    if problem:
        return None, problem
    # An engine may have been set up without the bridge that a RUN gets by default.
    bridge, _ = _docker("network", "inspect", "bridge", "--format", "{{.Name}}")
    return (
        Engine(
            name=info["ClientInfo"].get("Context", "default"),
            kind="existing",
            host=host,
            version=info["ServerVersion"],
            buildx=buildx,
            store=image_store(info),
            build_network="default" if bridge else "host",
        ),
        "",
    )


def image_store(info: Mapping[str, Any]) -> Literal["containerd", "classic"]:
    """Return which image store a daemon uses, by its answer to /info."""
    containerd = any("containerd" in value for pair in info.get("DriverStatus") or () for value in pair)
    return "containerd" if containerd else "classic"
