"""The container engine: one that is there, or a private one of Debian's packages.

`discovery` finds the user's Docker. `private` starts ours: `layout` says where its files are,
`daemons` starts and ends its processes. Whoever has an engine uses `docker_command`.
`debian` makes its root file system, and the bases that are bootstrapped on this machine.
"""

from typing import TYPE_CHECKING

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import discovery, private
from rdma_images.engine.docker_command import Engine

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = ["Engine", "client", "ensure", "exists", "running"]


def ensure(progress: Progress = silent) -> Engine:
    """Return a usable engine: the user's Docker, else the private one, started.

    Raises RdmaImagesError, which says what is missing and what to do, where there is neither.
    """
    engine, reason = discovery.find_engine()
    if engine:
        return engine
    if running := private.running():
        return running
    if obstacle := private.obstacle():
        fix = discovery.FIXES.get(reason) or private.fix(obstacle)
        raise RdmaImagesError(f"no engine to build with: {reason}, and {obstacle}\n{fix}")
    progress(f"{reason}: the private engine is used")
    return private.up(progress)


def running() -> Engine | None:
    """Return the engine that `ensure` would return, where one answers already; starts nothing."""
    engine, _ = discovery.find_engine()
    return engine or private.running()


def exists() -> bool:
    """Return whether an engine may hold images, running or not; starts nothing.

    Raises RdmaImagesError where DOCKER_HOST or a context names an engine that cannot be used.
    """
    engine, _ = discovery.find_engine()
    return engine is not None or private.exists()


def client(engine: Engine, timeout: int = 60) -> "DockerClient":
    """Return a docker-py client of `engine`, which the caller closes; it waits `timeout` seconds for an answer."""
    from docker import DockerClient  # 0.2 s, which who does not need it should not wait for

    return DockerClient.from_env(timeout=timeout, environment={**engine.environ(), "DOCKER_HOST": engine.host})
