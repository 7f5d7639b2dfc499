"""One image from an engine to a repository, by docker's own push: watched, read back, and tried again."""

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import docker
import requests
import urllib3.exceptions

from rdma_images.engine import Engine
from rdma_images.publish.events import Push
from rdma_images.publish.repair import send_again
from rdma_images.registry import faults
from rdma_images.registry.client import Descriptor, Manifest, Repository

Watch = Callable[[Push], None]
_QUESTIONS = 8  # at once, of a registry that has just taken gigabytes


@dataclass(frozen=True)
class Pace:
    """How patient to be. `first_wait` and `stall` are seconds."""

    attempts: int = 6
    first_wait: float = 1.0
    stall: int = 120  # without a byte: then a push is given up, for no timeout of docker's own fires


@dataclass(frozen=True)
class Traffic:
    """Bytes of layers by what became of them; `seconds` the pushing took."""

    pushed: int = 0
    mounted: int = 0
    there: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Pushed:
    """An image that arrived, as it was read back."""

    manifest: Manifest
    traffic: Traffic


def push(
    engine: Engine,
    digest: str,
    repository: Repository,
    tag: str,
    pace: Pace,
    watch: Watch,
    say: Callable[[str], None],
    mounted: Collection[str] = (),
) -> Pushed:
    """Push the image with manifest `digest` under `tag`, and read back what arrived.

    `mounted` are the layers that were brought there from another repository of the registry before.

    docker writes the tag when every layer is there, so a push that dies leaves none. Layers that arrived are kept by
    the registry, and the next attempt sends the others. Raises ConflictError for an engine that would send
    other bytes, and a PublishError after the last attempt.
    """
    if engine.store == "classic":
        raise faults.ConflictError(
            f"the engine {engine.name} has Docker's classic image store, which compresses layers anew for each push "
            "and so sends other bytes than were validated\nturn on its containerd image store, or use the private one"
        )
    started = time.monotonic()
    client = docker.DockerClient(base_url=engine.host, timeout=pace.stall)
    sending = _Sending(engine, client.api, digest, repository, tag, pace.stall, watch, say)
    try:
        _tag(client, digest, repository.ref, tag)
        try:
            faults.retry(sending.attempt, pace.attempts, pace.first_wait, say=say)
        finally:
            _untag(client.api, f"{repository.ref}:{tag}")
    except requests.RequestException as error:
        raise faults.PublishError(
            f"the engine {engine.name} does not answer: {error}\nsee with `docker info` that it runs"
        ) from None
    finally:
        client.close()

    def look() -> Manifest:
        found = read_back(repository, tag, digest)
        _check_blobs(found, repository)
        return found

    manifest = faults.retry(look, pace.attempts, pace.first_wait, say=say)
    return Pushed(manifest, _traffic(manifest, sending, mounted, time.monotonic() - started))


@dataclass
class _Sending:
    """The attempts at one push, and what each learned for the next. `stall` in seconds."""

    engine: Engine
    api: docker.APIClient
    digest: str
    repository: Repository
    tag: str
    stall: int
    watch: Watch
    say: Callable[[str], None]
    pushes: list[Push] = field(default_factory=list)
    repaired: set[str] = field(default_factory=set)
    refused: int = 0

    def attempt(self) -> None:
        """Push once; where the registry fails at one thing of the image, that is sent, and the push begun again."""
        # Anew each time: a layer that was cut off starts from zero again.
        self.pushes.append(Push())
        try:
            _attempt(self.api, self.repository, self.tag, self.pushes[-1], self.watch, self.stall, self.refused > 0)
        except faults.InternalError as error:
            if not error.about or error.about in self.repaired:
                raise
            self.say(f"{faults.short(error)}; sending {error.about} again")
            send_again(self.engine, self.digest, self.repository, error.about)
            self.repaired.add(error.about)
            self.attempt()
        except faults.UnauthorizedError as error:
            self.refused += 1
            # Credentials may have expired on the way; fresh ones that are refused as well are wrong.
            raise error if self.refused > 1 else faults.ExpiredError(str(error)) from None


def _attempt(
    api: docker.APIClient, repository: Repository, tag: str, seen: Push, watch: Watch, stall: int, fresh: bool
) -> None:
    """One push, whose events `seen` takes. Raises the PublishError that it ends with."""
    host, subject = repository.connection.host, f"{repository.name}:{tag}"
    login = repository.connection.login(fresh)
    secrets = login.secrets() if login else ()
    try:
        with _answers_closed(api):
            events = api.push(
                repository.ref, tag=tag, stream=True, decode=True, auth_config=login.for_docker() if login else {}
            )
            for event in _until_stalled(events, seen, host, stall):
                seen.take(event, host, subject)
                watch(seen)
    except docker.errors.APIError as error:
        raise faults.PublishError(
            f"{host}: {subject} was not pushed: {faults.masked(str(error), secrets)}\nlook into the engine's log"
        ) from None
    # docker-py reads the stream itself, so the network's errors arrive from every layer below it.
    except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError):
        raise faults.BusyError(
            f"{host} has stalled: no byte in {stall} s\ncheck the connection, and publish again: what arrived is kept"
        ) from None
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise faults.BusyError(
            f"the engine stopped answering in the middle of the push: {error}\nsee with `docker info` that it runs"
        ) from None
    if seen.digest is None:
        raise faults.BusyError(
            f"{host}: {subject} was not pushed: docker's answer ended early\nlook into the engine's log"
        )


@contextmanager
def _answers_closed(api: docker.APIClient) -> Iterator[None]:
    """Close what is still open of the engine's answers at the end: the engine pushes as long as somebody listens.

    docker-py hides the response behind a generator that does not close it; left to the garbage collector, an
    interrupted push would go on, and write its tag.
    """
    answers: list[requests.Response] = []

    def keep(answer: requests.Response, **_: object) -> None:
        answers.append(answer)

    api.hooks["response"].append(keep)
    try:
        yield
    finally:
        api.hooks["response"].remove(keep)
        for answer in answers:
            answer.close()


def _until_stalled(events: Iterator[dict[str, Any]], seen: Push, host: str, stall: int) -> Iterator[dict[str, Any]]:
    """`events` as long as something moves; docker repeats its events over a connection on which nothing does."""
    before, moved = seen.snapshot(), time.monotonic()
    for event in events:
        yield event
        if (now := seen.snapshot()) != before:
            before, moved = now, time.monotonic()
        elif time.monotonic() - moved > stall:
            raise faults.BusyError(
                f"{host} has stalled: no byte in {stall} s\n"
                "check the connection, and publish again: what arrived is kept"
            )


def _tag(client: docker.DockerClient, digest: str, ref: str, tag: str) -> None:
    """Give the image the name that it is pushed under, after making sure that it is the image meant."""
    try:
        image = client.images.get(digest)
    except docker.errors.ImageNotFound:
        raise faults.MissingError(f"the engine has no image {digest}\nbuild it again") from None
    if image.id != digest:
        raise faults.ConflictError(
            f"the engine knows {digest} as {image.id}, and would send other bytes than were validated\nbuild it again"
        )
    image.tag(ref, tag)


def _untag(api: docker.APIClient, name: str) -> None:
    try:
        api.remove_image(name, noprune=True)
    except (docker.errors.APIError, requests.RequestException):
        return  # the name is a convenience of ours; that it stays harms nobody


def read_back(repository: Repository, tag: str, digest: str) -> Manifest:
    """The manifest under `tag`. Raises ConflictError when it is not `digest`, or cannot be unpacked."""
    manifest = repository.manifest(tag)
    if manifest.digest != digest:
        raise faults.ConflictError(
            f"{repository.ref}:{tag} is {manifest.digest} in the registry, but {digest} was validated\n"
            "publish again: somebody else pushed to this tag at the same time"
        )
    layers = manifest.layers()
    if layers:
        diff_ids = (repository.config(manifest).get("rootfs") or {}).get("diff_ids") or []
        odd = [layer.media_type for layer in layers if ".tar" not in layer.media_type]
        mixed = [one.media_type for one in layers if "docker" in one.media_type and "zstd" in one.media_type]
        if len(layers) != len(diff_ids) or odd or mixed:
            types = ", ".join(odd + mixed) or "of good types"
            raise faults.ConflictError(
                f"{repository.ref}:{tag} cannot be pulled: {len(layers)} layers ({types}) for {len(diff_ids)} "
                "in its config\nbuild with oci-mediatypes=true"
            )
    return manifest


def _check_blobs(manifest: Manifest, repository: Repository) -> None:
    """Raise ConflictError when the registry does not hold all that the image consists of.

    docker leaves out what the registry says it has, and a registry says that of files which a power failure emptied.
    """
    blobs = (Descriptor.from_json(manifest.body["config"]), *manifest.layers())
    with ThreadPoolExecutor(_QUESTIONS) as pool:
        held = pool.map(lambda blob: repository.has_blob(blob.digest, blob.size), blobs)
        for blob, there in zip(blobs, held, strict=True):
            if not there:
                raise faults.ConflictError(f"{repository.ref}: the registry lost {blob.digest}\npublish again")


def _traffic(manifest: Manifest, sending: _Sending, mounted: Collection[str], seconds: float) -> Traffic:
    """The layers' bytes by what became of them; the last attempt calls present what an earlier one sent."""
    *earlier, last = sending.pushes
    sent_before = {layer.id for push in earlier for layer in push.layers.values() if layer.current}
    sums = {"pushed": 0, "mounted": 0, "there": 0}
    for layer in manifest.layers():
        name = layer.digest.removeprefix("sha256:")[:12]
        known = last.layers.get(name)
        state = known.state if known else "there"
        if state not in sums or (
            state == "there" and (name in sent_before or f"blobs/{layer.digest}" in sending.repaired)
        ):
            state = "pushed"
        if state == "there" and layer.digest in mounted:
            state = "mounted"
        sums[state] += layer.size
    return Traffic(**sums, seconds=seconds)
