"""A container of an image under test: no network, nothing of the host inside, gone afterwards."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from docker import DockerClient
from docker.errors import APIError, DockerException
from docker.models.containers import Container

from rdma_images.errors import RdmaImagesError

LIFE = 900  # seconds after which a container ends by itself, should this process be killed before it can end it
MEMORY = "6g"  # import torch takes 1
PROCESSES = 512
LABEL = "io.rdma-images.under-test"
# What keeps a container alive, from what most images have to what few have.
STAYS = (
    ["/bin/sleep", str(LIFE)],
    ["/usr/bin/sleep", str(LIFE)],
    ["/bin/sh", "-c", f"sleep {LIFE}"],
    ["python3", "-c", f"import time; time.sleep({LIFE})"],
)


@dataclass(frozen=True)
class Sealed:
    """A container of the image; `running` is False where the image holds nothing that could be started in it."""

    container: Container
    running: bool


@contextlib.contextmanager
def sealed(client: DockerClient, image: str) -> Iterator[Sealed]:
    """A sealed container of `image`, removed at the end whatever happens in between.

    It has no network, no mount, no capability and a read-only file system; it runs as root so that everything can be
    read, with the image's environment but not its entry point. Python may write to /dev/shm, which is its own.
    Raises RdmaImagesError where the engine refuses.
    """
    found = None
    try:
        found = _started(client, image)
        yield found
    except DockerException as error:
        raise RdmaImagesError(f"the engine could not run {image}: {error}") from None
    finally:
        if found:
            with contextlib.suppress(DockerException):
                found.container.remove(force=True)


def _started(client: DockerClient, image: str) -> Sealed:
    for command in STAYS:
        container = _created(client, image, command)
        try:
            container.start()
            return Sealed(container, True)
        except BaseException as error:
            container.remove(force=True)
            if not (isinstance(error, APIError) and _not_there(error)):
                raise
    return Sealed(_created(client, image, ["/nothing-to-run"]), False)


def _created(client: DockerClient, image: str, command: list[str]) -> Container:
    return client.containers.create(
        image,
        command[1:],
        entrypoint=command[:1],
        environment={"TMPDIR": "/dev/shm", "HOME": "/dev/shm", "PYTHONDONTWRITEBYTECODE": "1"},
        labels={LABEL: image},
        user="0:0",
        working_dir="/",
        network_mode="none",
        network_disabled=True,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        mem_limit=MEMORY,
        pids_limit=PROCESSES,
        init=False,
        healthcheck={"test": ["NONE"]},
    )


def _not_there(error: APIError) -> bool:
    """Whether a start failed because the image lacks the command (or its architecture is another)."""
    words = str(error.explanation or error).lower()
    return any(
        w in words
        for w in ("no such file", "executable file not found", "not found in $path", "permission denied", "exec format")
    )
