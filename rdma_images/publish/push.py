"""Push an image with docker's own push: watched, read back, retried."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import docker
import requests
import urllib3.exceptions

from rdma_images.core.progress import Progress, report_waiting
from rdma_images.engine import Engine
from rdma_images.engine import client as engine_client
from rdma_images.publish.push_progress import PushProgress
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Descriptor, Manifest, Repository


@dataclass(frozen=True)
class PushPolicy:
    """Limits of a push. `first_wait` and `stall` are in seconds."""

    attempts: int = 6
    first_wait: float = 1.0
    stall: int = 120  # without a byte: then a push is given up, for no timeout of docker's own fires


@dataclass(frozen=True)
class LayerTraffic:
    """Bytes of layers by their result; `seconds` is the duration of the push."""

    pushed: int = 0
    mounted: int = 0
    present: int = 0
    seconds: float = 0.0


def push_image(
    engine: Engine,
    digest: str,
    repository: Repository,
    tag: str,
    policy: PushPolicy,
    progress: Progress,
    mounted: Collection[str] = (),
) -> tuple[Manifest, LayerTraffic]:
    """Push the image with manifest `digest` under `tag`; return it as it was read back, and what became of its layers.

    docker writes the tag when every layer has arrived, so a push that dies leaves none. The registry keeps the layers
    that arrived, and the next attempt sends the others.

    Args:
        mounted: Digests of the layers that were mounted from another repository of the registry before.

    Raises:
        ConflictError: The engine would send other bytes than were validated.
        RegistryError: The last attempt failed.
    """
    if engine.store == "classic":
        raise registry_errors.ConflictError(
            f"the engine {engine.name} has Docker's classic image store, which compresses layers anew for each push "
            "and so sends other bytes than were validated\nturn on its containerd image store, or use the private one"
        )
    started = time.monotonic()
    client = engine_client(engine, policy.stall)
    attempts = _PushAttempts(client.api, repository, tag, policy.stall)
    try:
        _tag(client, digest, repository.ref, tag)
        try:
            with report_waiting(progress, attempts.description):
                registry_errors.retry(attempts.attempt, policy.attempts, policy.first_wait, progress=progress)
        finally:
            with suppress(docker.errors.APIError, requests.RequestException):  # if the name stays, nothing breaks
                client.api.remove_image(f"{repository.ref}:{tag}", noprune=True)
    except requests.RequestException as error:
        raise registry_errors.RegistryError(
            f"the engine {engine.name} does not answer: {error}\nsee with `docker info` that it runs"
        ) from None
    finally:
        client.close()
    checked_read_back = partial(_read_back_with_blobs, repository, tag, digest)
    manifest = registry_errors.retry(checked_read_back, policy.attempts, policy.first_wait, progress=progress)
    return manifest, _traffic(manifest, attempts, mounted, time.monotonic() - started)


@dataclass
class _PushAttempts:
    """The attempts at one push, and what each learned for the next. `stall` is in seconds."""

    api: docker.APIClient
    repository: Repository
    tag: str
    stall: int
    pushes: list[PushProgress] = field(default_factory=list)
    refused: int = 0

    def description(self) -> str:
        """Return how far the last attempt is."""
        return f"{self.repository.ref}: {self.pushes[-1].description()}" if self.pushes else self.repository.ref

    def attempt(self) -> None:
        """Push once. Raises ExpiredError for the first credentials that are refused: fresh ones may be taken."""
        # New for each attempt: a layer that was cut off starts from zero again.
        self.pushes.append(PushProgress())
        try:
            self._push(self.pushes[-1])
        except registry_errors.UnauthorizedError as error:
            self.refused += 1
            # Credentials may have expired on the way; fresh ones that are refused as well are wrong.
            raise error if self.refused > 1 else registry_errors.ExpiredError(str(error)) from None

    def _push(self, progress: PushProgress) -> None:
        """Push once and pass each event to `progress`. Raises the push's RegistryError."""
        repository = self.repository
        host, subject = repository.connection.host, f"{repository.name}:{self.tag}"
        login = repository.connection.login(fresh=self.refused > 0)
        auth = login.for_docker() if login else {}
        try:
            with _closing_responses(self.api):
                events = self.api.push(repository.ref, tag=self.tag, stream=True, decode=True, auth_config=auth)
                for event in _events_until_stalled(events, progress, host, self.stall):
                    progress.update(event, host, subject)
        except docker.errors.APIError as error:
            masked = registry_errors.mask_secrets(str(error), [login.password] if login else ())
            raise registry_errors.RegistryError(
                f"{host}: {subject} was not pushed: {masked}\nlook into the engine's log"
            ) from None
        # docker-py reads the stream itself, so the network's errors arrive from every layer below it.
        except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError):
            raise _stalled(host, self.stall) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise registry_errors.BusyError(
                f"the engine stopped answering in the middle of the push: {error}\nsee with `docker info` that it runs"
            ) from None
        if progress.digest is None:
            raise registry_errors.BusyError(
                f"{host}: {subject} was not pushed: docker's answer ended early\nlook into the engine's log"
            )


@contextmanager
def _closing_responses(api: docker.APIClient) -> Iterator[None]:
    """Close the engine's open responses at the end of the block, to end the push.

    docker-py hides the response behind a generator that does not close it; left to the garbage collector, an
    interrupted push would go on, and write its tag.
    """
    responses: list[requests.Response] = []

    def collect(response: requests.Response, **_: object) -> None:
        responses.append(response)

    api.hooks["response"].append(collect)
    try:
        yield
    finally:
        api.hooks["response"].remove(collect)
        for response in responses:
            response.close()


def _events_until_stalled(
    events: Iterator[dict[str, Any]], progress: PushProgress, host: str, stall: int
) -> Iterator[dict[str, Any]]:
    """Yield `events` as long as something moves.

    docker repeats its events over a connection on which nothing does.
    """
    last_snapshot, last_change = progress.snapshot(), time.monotonic()
    for event in events:
        yield event
        if (snapshot := progress.snapshot()) != last_snapshot:
            last_snapshot, last_change = snapshot, time.monotonic()
        elif time.monotonic() - last_change > stall:
            raise _stalled(host, stall)


def _stalled(host: str, stall: int) -> registry_errors.BusyError:
    """Return the error of a push in which nothing moves."""
    return registry_errors.BusyError(
        f"{host} has stalled: no byte in {stall} s\ncheck the connection, and publish again: what arrived is kept"
    )


def _tag(client: docker.DockerClient, digest: str, ref: str, tag: str) -> None:
    """Give the image the name for its push, after checking its digest."""
    try:
        image = client.images.get(digest)
    except docker.errors.ImageNotFound:
        raise registry_errors.MissingError(f"the engine has no image {digest}\nbuild it again") from None
    if image.id != digest:
        raise registry_errors.ConflictError(
            f"the engine knows {digest} as {image.id}, and would send other bytes than were validated\nbuild it again"
        )
    image.tag(ref, tag)


def read_back(repository: Repository, tag: str, digest: str) -> Manifest:
    """Return the manifest under `tag`. Raises ConflictError for another."""
    manifest = repository.manifest(tag)
    if manifest.digest != digest:
        raise registry_errors.ConflictError(
            f"{repository.ref}:{tag} is {manifest.digest} in the registry, but {digest} was validated\n"
            "publish again: somebody else pushed to this tag at the same time"
        )
    return manifest


def _read_back_with_blobs(repository: Repository, tag: str, digest: str) -> Manifest:
    """Return `read_back`. Raises ConflictError where the registry lacks blobs of the image.

    docker leaves out what the registry says it has, and a registry says that of files which a power failure emptied.
    """
    manifest = read_back(repository, tag, digest)
    blobs = (Descriptor.from_json(manifest.body["config"]), *manifest.layers())
    sizes = {blob.digest: blob.size for blob in blobs}
    for lost in sizes.keys() - repository.present_blobs(sizes):
        raise registry_errors.ConflictError(f"{repository.ref}: the registry lost {lost}\npublish again")
    return manifest


def _traffic(manifest: Manifest, attempts: _PushAttempts, mounted: Collection[str], seconds: float) -> LayerTraffic:
    """Sum the layers' bytes by result; layers that an earlier attempt sent count as pushed."""
    *earlier_pushes, last_push = attempts.pushes
    sent_before = {
        layer.id for earlier_push in earlier_pushes for layer in earlier_push.layers.values() if layer.current
    }
    sums = {"pushed": 0, "mounted": 0, "present": 0}
    for layer in manifest.layers():
        name = layer.digest.removeprefix("sha256:")[:12]
        progress = last_push.layers.get(name)
        state = progress.state if progress else "present"
        if state not in sums or (state == "present" and name in sent_before):
            state = "pushed"
        if state == "present" and layer.digest in mounted:
            state = "mounted"
        sums[state] += layer.size
    return LayerTraffic(**sums, seconds=seconds)
