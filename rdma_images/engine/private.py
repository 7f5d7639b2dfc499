"""The private engine: Docker from Debian's packages, in the user's state folder."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import asdict, replace

from rdma_images.core import atomic, locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import daemon_api, daemons, docker_command
from rdma_images.engine.debian import bootstrap, debian_packages, host_apt
from rdma_images.engine.discovery import image_store
from rdma_images.engine.docker_command import Engine
from rdma_images.engine.layout import Layout, layout, write_configuration

INFO_SECONDS = 30.0  # seconds for an answer; 0.1 s on an idle machine
NEEDS_ROOT = "a private one needs root"


def obstacle() -> str | None:
    """Return why no private engine can run here, as half a sentence; None if it can."""
    try:
        host_apt.host_archives()
    except RdmaImagesError as error:
        return f"a private one is made of Debian's packages, but {error}"
    return None if os.geteuid() == 0 else NEEDS_ROOT


def fix(problem: str) -> str:
    """Return what to do without an engine, given the obstacle to a private one."""
    docker = "install Docker 24 or later with buildx 0.12 or later"
    if problem != NEEDS_ROOT:
        return f"{docker}, or set DOCKER_HOST"
    return f"{docker} and add this user to its group, set DOCKER_HOST, or run the command as root"


def exists() -> bool:
    """Return whether the state folder has a private engine, running or not."""
    return layout().root.exists()


def running() -> Engine | None:
    """Return the private engine within milliseconds; None where it does not answer."""
    folders = layout()
    if len(daemons.running(folders)) < len(daemons.DAEMONS) or not daemons.is_answering(folders):
        return None
    try:
        described = json.loads(folders.description.read_text(encoding="utf-8"))
        return Engine(**described, env=_env(folders))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def up(progress: Progress = silent) -> Engine:
    """Return the private engine, started if necessary. Raises RdmaImagesError."""
    if engine := running():
        return engine
    if problem := obstacle():
        raise RdmaImagesError(f"no private engine can be started: {problem}\n{fix(problem)}")
    with locking.hold("engine", "starting the private engine", progress):
        folders = layout()
        if engine := _wait_for_daemons(folders, progress):
            return engine
        daemons.stop(folders)  # what is left of a killed one, found by programs that may be about to be replaced
        _unpack(folders, progress)
        progress("starting the private engine")
        write_configuration(folders)
        env = _env(folders)
        daemons.start(folders, env["PATH"])
        return describe(folders, env)


def down(purge: bool = False, progress: Progress = silent) -> bool:
    """End the private engine: no process, mount or socket stays.

    Args:
        purge: remove its packages, images and cache, too, and the bases and what else came from Debian's archive.
        progress: is called with each step.

    Returns:
        whether there was anything to end or remove.

    Raises:
        RdmaImagesError: something cannot be ended.
    """
    folders = layout()
    existing = [
        folder for folder in (folders.root, bootstrap.cache_folder(), debian_packages.cache_path()) if folder.exists()
    ]
    if not existing:
        return False
    with locking.hold("engine", "ending the private engine", progress):
        was_running = daemons.stop(folders)
        for folder in existing if purge else ():
            progress(f"removing {folder}")
            shutil.rmtree(folder)
    return was_running or purge


def _wait_for_daemons(folders: Layout, progress: Progress) -> Engine | None:
    """Return the engine once its running daemons answer; None where one does not run.

    An engine that is slow with somebody's work is waited for, and only `down` ends it.
    """
    deadline = time.monotonic() + daemons.START_SECONDS
    reported = False
    while len(daemons.running(folders)) == len(daemons.DAEMONS):
        if daemons.is_answering(folders):
            return running() or describe(folders, _env(folders))
        if time.monotonic() > deadline:
            raise RdmaImagesError(
                f"the private engine runs but has not answered for {daemons.START_SECONDS:.0f} s\n"
                f"`{COMMAND} engine.down` ends it and what it does; the next build starts it again"
            )
        if not reported:
            progress("waiting for the private engine to answer")
            reported = True
        time.sleep(0.1)
    return None


def _unpack(folders: Layout, progress: Progress) -> None:
    """Fetch the engine's packages that are missing."""
    for bundle in (folders.docker, folders.runtime):
        suite = bundle.suite or host_apt.host_archives().codename
        debian_packages.fetch(bundle.packages, suite, bundle.folder, progress)


def describe(folders: Layout, env: dict[str, str]) -> Engine:
    """Return the running engine as it describes itself, and write that for `running`."""
    _output(env, "runc", "--version")  # a library that the host lacks shows here, not in the middle of a build
    try:
        info = daemon_api.request(folders.socket, "/info", INFO_SECONDS)
    except OSError as error:
        raise RdmaImagesError(
            f"the private engine runs, but does not say what it is: {error}\ntry again; its logs are in {folders.log}"
        ) from None
    described = Engine(
        name="private",
        kind="private",
        host=folders.host,
        version=info["ServerVersion"],
        buildx="",
        store=image_store(info),
        build_network="host",
        env=env,
    )
    described = replace(described, buildx=docker_command.output(described, "buildx", "version").split()[1])
    # Each process gets its own environment.
    atomic.write(folders.description, json.dumps({k: v for k, v in asdict(described).items() if k != "env"}, indent=1))
    return described


def _output(env: dict[str, str], *command: str) -> str:
    """Return a command's output. Raises RdmaImagesError where it does not run."""
    process = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    if process.returncode:
        raise RdmaImagesError(
            f"the private engine's `{' '.join(command)}` does not run: {process.stderr.strip()}\n"
            "install what it names, or Docker 24 or later with buildx 0.12 or later"
        )
    return process.stdout


def _env(folders: Layout) -> dict[str, str]:
    """Return the environment variables that a docker client of this engine needs in addition."""
    path_folders = [str(folder) for folder in folders.path]
    other_folders = [
        folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder not in path_folders
    ]
    path = os.pathsep.join([*path_folders, *other_folders])
    return {"PATH": path, "DOCKER_HOST": folders.host, "DOCKER_CONFIG": str(folders.docker_config)}
