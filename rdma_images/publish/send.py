"""One image to one registry: look, prepare, push, read back, attach, sign. A step whose work is done does nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from rdma_images.core.paths import COMMAND
from rdma_images.engine import Engine
from rdma_images.publish import from_engine, gate, keys, push
from rdma_images.publish.attach import Artifact, Attached, IsTrusted, attach, fallback_tag, trust_all
from rdma_images.publish.destination import Destination, unwanted
from rdma_images.publish.item import Item, artifacts
from rdma_images.publish.mount import mount
from rdma_images.publish.moving_tags import move
from rdma_images.publish.progress import Watcher
from rdma_images.publish.publication import PUBLICATION, Place
from rdma_images.publish.repair import digest_under
from rdma_images.publish.signing import ImageSigner
from rdma_images.publish.tags import own
from rdma_images.registry import faults
from rdma_images.registry.client import Manifest, Repository, labels_of

Result = TypeVar("Result")


@dataclass(frozen=True)
class Publisher:
    """What publishing needs beside the image: who sends (asked for only when something is sent), watches and signs."""

    engine: Callable[[], Engine]
    watcher: Watcher
    signer: keys.Signer | None = None
    pace: push.Pace = field(default_factory=push.Pace)

    def retry(self, action: Callable[[], Result]) -> Result:
        """`action`, tried again after what may heal."""
        return faults.retry(action, self.pace.attempts, self.pace.first_wait, say=self.watcher.line)


@dataclass(frozen=True)
class Arrival:
    """An image that is under its tag: as it was read back, and how it came there."""

    manifest: Manifest
    traffic: push.Traffic
    pushed: bool
    tag: str  # the full one, or this build's own where the full one stays with an earlier build
    made: tuple[str, ...] = ()  # what was created in the registry for it


def is_there(item: Item, place: Destination) -> bool:
    """Whether the image is under its tag already: then there is nothing to send but, perhaps, attachments."""
    repository = place.repository(item.image.target)
    _, there = _tag(item, place, repository)
    return there == item.build.digest


def _tag(item: Item, place: Destination, repository: Repository) -> tuple[str, str | None]:
    """The tag for the image, and the digest that it leads to already.

    Where tags do not change and the full one was given to an earlier build of the same versions, this build gets one
    of its own.
    """
    full, digest = item.tags.full, item.build.digest
    current = digest_under(full, repository)
    if current in (None, digest) or not place.immutable:
        return full, current
    tag = own(full, digest)
    return tag, digest_under(tag, repository)


def send(item: Item, place: Destination, publisher: Publisher) -> Place:
    """Bring the image to the registry, with all that belongs to it but its short tags.

    Raises a PublishError or RefusedError; what has arrived until then stays, and the next run sends the rest.
    """
    gate.check_place(item.build, place.kind.host)
    repository = place.repository(item.image.target)
    arrival = _bring(item, place, repository, publisher)
    signing = (
        ImageSigner(publisher.signer, place, repository, item.build.digest, publisher.watcher.line)
        if publisher.signer
        else None
    )
    files, attached = _attach(
        item, arrival.manifest, repository, publisher, signing.is_trusted if signing else trust_all
    )
    if publisher.signer and signing:
        ours = [file for file, one in zip(files, attached, strict=True) if not one.others]
        new = any(one.new for one in attached)  # which nobody can have signed
        if new or not (_signed_before(publisher.signer, item, place, repository) or signing.has_signed(ours)):
            signing.sign(ours, publisher.retry)
    return Place(
        registry=place.name,
        ref=f"{repository.ref}@{item.build.digest}",
        tags=(arrival.tag,),
        result="pushed" if arrival.pushed else "there",
        media_type=arrival.manifest.media_type,
        layers=len(arrival.manifest.layers()),
        bytes=sum(layer.size for layer in arrival.manifest.layers()),
        traffic=arrival.traffic,
        attached=attached,
        signed_by=keys.name_of(publisher.signer.key) if publisher.signer else None,
        made=arrival.made,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _bring(item: Item, place: Destination, repository: Repository, publisher: Publisher) -> Arrival:
    """The image under its tag; pushed where it is not there yet."""
    digest = item.build.digest
    tag, current = publisher.retry(partial(_tag, item, place, repository))
    if tag != item.tags.full:
        publisher.watcher.line(f"{place.name}: {item.tags.full} stays with an earlier build: {digest} is {tag}")
    if current == digest:
        manifest = publisher.retry(lambda: push.read_back(repository, tag, digest))
        there = push.Traffic(there=sum(layer.size for layer in manifest.layers()))
        return Arrival(manifest, there, pushed=False, tag=tag)
    _check_compression(digest, place, publisher)
    made = publisher.retry(lambda: place.kind.prepare(repository.name, item.tags.moving())).made
    for line in made:
        publisher.watcher.line(f"{place.name}: made {line}")
    mounted = mount(item, place, repository, publisher.watcher.line)
    publisher.watcher.line(f"{place.name}: pushing {repository.ref}:{tag}")
    engine, watcher = publisher.engine(), publisher.watcher
    arrived = push.push(engine, digest, repository, tag, publisher.pace, watcher.moved, watcher.line, mounted)
    return Arrival(arrived.manifest, arrived.traffic, pushed=True, tag=tag, made=made)


def _check_compression(digest: str, place: Destination, publisher: Publisher) -> None:
    """Raise ConflictError before a byte is sent when the registry's users could not pull the layers."""
    if place.compression == "any":
        return
    publisher.watcher.line(f"{place.name}: reading the layers' types, for it takes {place.compression} only")
    if types := unwanted(from_engine.manifest(publisher.engine(), digest), place.compression):
        raise faults.ConflictError(
            f"{place.name} takes layers of {place.compression} only (compression in registries.yaml), and {digest} has "
            f"{', '.join(types)}\n"
            f"build it with `{COMMAND} build --compression {place.compression}`, or change registries.yaml"
        )


def _attach(
    item: Item, manifest: Manifest, repository: Repository, publisher: Publisher, is_trusted: IsTrusted
) -> tuple[tuple[Artifact, ...], tuple[Attached, ...]]:
    """Attach provenance, bill of materials and report; what they are, and what became of each."""

    def act() -> tuple[tuple[Artifact, ...], tuple[Attached, ...]]:
        labels = labels_of(repository.config(manifest))
        files = artifacts(item, labels)
        return files, attach(files, manifest.descriptor, repository, is_trusted)

    return publisher.retry(act)


def _signed_before(signer: keys.Signer, item: Item, place: Destination, repository: Repository) -> bool:
    before = PUBLICATION.usable(item.image.id)
    known = before.places.get(place.name) if before is not None and before.digest == item.build.digest else None
    if known is None or known.signed_by != keys.name_of(signer.key):
        return False
    stem = fallback_tag(item.build.digest)
    return all(repository.head(f"{stem}.{kind}") for kind in ("sig", "att"))


def move_tags(item: Item, done: Place, place: Destination, publisher: Publisher) -> Place:
    """Point the short tags to the image, now that everything before has arrived; the place with the tags it has."""
    repository = place.repository(item.image.target)
    if item.tags.joint is not None:  # they belong to the index over the platforms
        return done
    moved = publisher.retry(partial(move, item.tags.short, item.build.digest, repository, publisher.watcher.line))
    return replace(done, tags=(*done.tags, *moved))
