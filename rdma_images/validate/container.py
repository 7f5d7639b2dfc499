"""A container of an image under test: no network, nothing of the host inside, removed afterwards."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from docker import DockerClient
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.types import LogConfig, Mount
from requests.exceptions import ReadTimeout

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import plain

# After these a container ends by itself, should this process be killed before it can end it.
LIFETIME_SECONDS = 900
MEMORY = "6g"  # import torch takes 1
MAX_PROCESSES = 512
SCRATCH_FOLDERS, SCRATCH_SIZE = ("/tmp", "/var/tmp", "/run"), "64m"
LABEL = "io.rdma-images.under-test"
# What keeps a container alive, from what most images have to what few have.
KEEP_ALIVE_COMMANDS = (
    ["/bin/sleep", str(LIFETIME_SECONDS)],
    ["/usr/bin/sleep", str(LIFETIME_SECONDS)],
    ["/bin/sh", "-c", f"sleep {LIFETIME_SECONDS}"],
    ["python3", "-c", f"import time; time.sleep({LIFETIME_SECONDS})"],
)


@dataclass(frozen=True)
class SealedContainer:
    """A container of the image; not `running` where nothing could be started in it.

    `mounted` are the folders that the image declares as volumes: what it has in them was copied to others.
    """

    container: Container
    running: bool
    mounted: Mapping[str, str] = field(default_factory=dict)  # folder -> name of its volume

    def is_running(self) -> bool:
        """Return whether the container still runs.

        It may end by itself if its `sleep` is another program.
        """
        with contextlib.suppress(NotFound):
            self.container.reload()
            return self.running and self.container.status == "running"
        return False


class IdleClock:
    """The seconds since a container's processes last computed, as its engine counts them.

    Waiting for a busy processor does not count as idle: a waiting process still gets more than IDLE of one. Nor does
    the time before the container has started.
    """

    IDLE = 0.001  # of a processor

    def __init__(self, client: DockerClient, container: Container) -> None:
        """Begin to count for a container, started or not."""
        self._client, self._container = client, container
        self._computed = self._looked = time.monotonic()
        self._used = self._processor_seconds()

    def __call__(self) -> float:
        """Return the seconds until now; looked at once a second."""
        now = time.monotonic()
        if now - self._looked >= 1.0:
            used = self._processor_seconds()
            if not used or used - self._used >= self.IDLE * (now - self._looked):
                self._computed = now
            self._looked, self._used = now, used
        return now - self._computed

    def _processor_seconds(self) -> float:
        api: Any = self._client.api
        try:
            stats = api.stats(self._container.id, stream=False, one_shot=True)
        except DockerException:  # it has just ended
            return 0.0
        return float(stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage") or 0) / 1e9


@contextlib.contextmanager
def sealed_container(client: DockerClient, image: str) -> Iterator[SealedContainer]:
    """Provide a sealed container of `image`, removed at the end whatever happens in between.

    It has no network, nothing of the host, no capability and a file system that is read-only, volumes too; it runs as
    root so that everything can be read, with the image's environment but not its entry point. Python may write to
    /dev/shm, which is its own. Raises RdmaImagesError where the engine refuses.
    """
    with contextlib.ExitStack() as stack:
        try:
            api: Any = client.api
            declared = (api.inspect_image(image).get("Config") or {}).get("Volumes") or {}
            folders = sorted({str(PurePosixPath("/", folder)) for folder in declared})
            volumes = {folder: _volume(client, image, stack) for folder in folders}
            yield _start(client, image, volumes, stack)
        except DockerException as error:
            raise RdmaImagesError(
                f"the engine could not run {image}: {plain(str(error))}\nsee that `docker run` starts it"
            ) from None


@contextlib.contextmanager
def scratch_container(client: DockerClient, image: str, box: SealedContainer, **process: Any) -> Iterator[Container]:
    """Provide a container, not started, that is removed after the block.

    It is as sealed as `box`, whose volumes it shares. `process` says what is started, as docker's create does; user,
    environment and folder are the image's. Only SCRATCH_FOLDERS may be written to, in memory. Raises docker's errors.
    """
    scratch = {folder: f"size={SCRATCH_SIZE}" for folder in SCRATCH_FOLDERS if folder not in box.mounted}
    container = client.containers.create(image, tmpfs=scratch, **process, **_seal(image, box.mounted))
    try:
        yield container
    finally:
        remove_quietly(container.remove, force=True, v=True)


def _volume(client: DockerClient, image: str, stack: contextlib.ExitStack) -> str:
    """Return a new volume with the image's files of a folder; it ends with the stack."""
    volume = client.volumes.create(labels={LABEL: image})
    stack.callback(remove_quietly, volume.remove, force=True)
    return str(volume.name)


def _start(
    client: DockerClient, image: str, volumes: Mapping[str, str], stack: contextlib.ExitStack
) -> SealedContainer:
    for command in KEEP_ALIVE_COMMANDS:
        container = _created(client, image, command, volumes, stack)
        try:
            container.start()
        except APIError as error:
            if not _is_missing(error):
                raise
        else:
            return SealedContainer(container, True, volumes)
    return SealedContainer(_created(client, image, ["/nothing-to-run"], volumes, stack), False, volumes)


def _created(
    client: DockerClient, image: str, command: list[str], volumes: Mapping[str, str], stack: contextlib.ExitStack
) -> Container:
    """Return a container, not started, removed with the stack."""
    container = client.containers.create(
        image,
        command[1:],
        entrypoint=command[:1],
        environment={"TMPDIR": "/dev/shm", "HOME": "/dev/shm", "PYTHONDONTWRITEBYTECODE": "1"},
        user="0:0",
        working_dir="/",
        **_seal(image, volumes),
    )
    stack.callback(remove_quietly, container.remove, force=True, v=True)
    return container


def _seal(image: str, volumes: Mapping[str, str]) -> dict[str, Any]:
    """Return what keeps a container from everything outside it."""
    return {
        "labels": {LABEL: image},
        "network_mode": "none",
        "network_disabled": True,
        "read_only": True,
        "mounts": [Mount(folder, name, type="volume", read_only=True) for folder, name in volumes.items()],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "mem_limit": MEMORY,
        "memswap_limit": MEMORY,
        "pids_limit": MAX_PROCESSES,
        "log_config": LogConfig(type="none"),
        "init": False,
        "healthcheck": {"test": ["NONE"]},
    }


def remove_quietly(remove: Callable[..., object], **how: bool) -> None:
    """Remove what the engine may have removed already.

    Where that takes minutes, it goes on alone.
    """
    with contextlib.suppress(DockerException, ReadTimeout):
        remove(**how)


def _is_missing(error: APIError) -> bool:
    """Return whether a start failed for want of a command for this machine."""
    words = str(error.explanation or error).lower()
    return any(
        w in words
        for w in ("no such file", "executable file not found", "not found in $path", "permission denied", "exec format")
    )
