"""Volumes that containers leave behind, in an engine that other tests use meanwhile."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from docker import DockerClient

WAIT = 60  # seconds: a container of another test may go, and its volume a moment after it


@contextmanager
def none_stays(client: DockerClient) -> Iterator[None]:
    """Fail where containers that end in its body leave a volume that no container has."""
    before = _unused(client)
    yield
    deadline = time.monotonic() + WAIT
    while (remaining := _unused(client) - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not remaining


def _unused(client: DockerClient) -> set[str | None]:
    return {volume.id for volume in client.volumes.list(filters={"dangling": True})}
