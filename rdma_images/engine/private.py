"""The private engine: Docker from Debian's packages, in the user's state folder."""

import os
import shutil
import time

from rdma_images.core import locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import daemons
from rdma_images.engine.debian import bootstrap, debian_packages, host_apt
from rdma_images.engine.docker_command import Engine
from rdma_images.engine.layout import Layout, layout, write_configuration

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
    runs = len(daemons.running(folders)) == len(daemons.DAEMONS) and daemons.is_answering(folders)
    return _engine(folders) if runs else None


def up(progress: Progress = silent) -> Engine:
    """Return the private engine, started if necessary. Raises RdmaImagesError."""
    if engine := running():
        return engine
    if problem := obstacle():
        raise RdmaImagesError(f"no private engine can be started: {problem}\n{fix(problem)}")
    with locking.hold("engine", "starting the private engine", progress):
        folders = layout()
        if _wait_for_daemons(folders):
            return _engine(folders)
        daemons.stop(folders)  # what is left of a killed one, found by programs that may be about to be replaced
        _unpack(folders, progress)
        progress("starting the private engine")
        write_configuration(folders)
        engine = _engine(folders)
        daemons.start(folders, engine.env["PATH"])
        return engine


def down(purge: bool = False, progress: Progress = silent) -> bool:
    """End the private engine: no process, mount or socket stays.

    Args:
        purge: remove its packages, images and cache, too, and the bases and what else came from Debian's archive.

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


def _wait_for_daemons(folders: Layout) -> bool:
    """Return whether the daemons run, once they answer.

    An engine that is slow with somebody's work is waited for, and only `down` ends it.
    """
    deadline = time.monotonic() + daemons.START_SECONDS
    while len(daemons.running(folders)) == len(daemons.DAEMONS):
        if daemons.is_answering(folders):
            return True
        if time.monotonic() > deadline:
            raise RdmaImagesError(
                f"the private engine runs but has not answered for {daemons.START_SECONDS:.0f} s\n"
                f"`{COMMAND} engine.down` ends it and what it does; the next build starts it again"
            )
        time.sleep(0.1)
    return False


def _unpack(folders: Layout, progress: Progress) -> None:
    """Fetch the engine's packages that are missing."""
    for bundle in (folders.docker, folders.runtime):
        suite = bundle.suite or host_apt.host_archives().codename
        debian_packages.fetch(bundle.packages, suite, bundle.folder, progress)


def _engine(folders: Layout) -> Engine:
    """Return the engine of these folders, which answers once its daemons do."""
    versions = debian_packages.fetched_packages(folders.docker.folder)
    path_folders = [str(folder) for folder in folders.path]
    other_folders = [
        folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder not in path_folders
    ]
    path = os.pathsep.join([*path_folders, *other_folders])
    return Engine(
        name="private",
        kind="private",
        host=folders.host,
        version=versions.get("docker.io", ""),
        buildx=versions.get("docker-buildx", ""),
        store="containerd",
        build_network="host",
        env={"PATH": path, "DOCKER_HOST": folders.host, "DOCKER_CONFIG": str(folders.docker_config)},
    )
