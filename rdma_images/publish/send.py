"""One image to one registry: look, prepare, push, read back, attach, sign. A step whose work is done does nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from rdma_images.engine import Engine
from rdma_images.publish import faults, gate, keys, local, push
from rdma_images.publish.attach import Artifact, Attached, Believed, anybody, attach, fallback_tag
from rdma_images.publish.client import Manifest, Repository, labels_of
from rdma_images.publish.destination import Destination, unwanted
from rdma_images.publish.item import Item, artifacts
from rdma_images.publish.mend import digest_under
from rdma_images.publish.moving import move
from rdma_images.publish.progress import Watcher
from rdma_images.publish.publication import Place, load
from rdma_images.publish.seal import Seal
from rdma_images.publish.tags import own

Result = TypeVar("Result")


@dataclass(frozen=True)
class Means:
    """What publishing needs beside the image: who sends (asked for only when something is sent), watches and signs."""

    engine: Callable[[], Engine]
    watcher: Watcher
    signer: keys.Signer | None = None
    pace: push.Pace = field(default_factory=push.Pace)

    def persist(self, action: Callable[[], Result]) -> Result:
        """`action`, tried again after what may heal."""
        return faults.persist(action, self.pace.attempts, self.pace.first_wait, say=self.watcher.line)


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


def send(item: Item, place: Destination, means: Means) -> Place:
    """Bring the image to the registry, with all that belongs to it but its short tags.

    Raises a PublishError or RefusedError; what has arrived until then stays, and the next run goes on from there.
    """
    gate.check_place(item.build, place.kind.host)
    repository = place.repository(item.image.target)
    arrival = _bring(item, place, repository, means)
    seal = Seal(means.signer, place, repository, item.build.digest, means.watcher.line) if means.signer else None
    files, attached = _attach(item, arrival.manifest, repository, means, seal.believes if seal else anybody)
    if means.signer and seal:
        ours = [file for file, one in zip(files, attached, strict=True) if not one.others]
        new = any(one.new for one in attached)  # which nobody can have signed
        if new or not (_signed_before(means.signer, item, place, repository) or seal.is_on(ours)):
            seal.put(ours, means.persist)
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
        signed_by=keys.name_of(means.signer.key) if means.signer else None,
        made=arrival.made,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _bring(item: Item, place: Destination, repository: Repository, means: Means) -> Arrival:
    """The image under its tag; pushed where it is not there yet."""
    digest = item.build.digest
    tag, current = means.persist(partial(_tag, item, place, repository))
    if tag != item.tags.full:
        means.watcher.line(f"{place.name}: {item.tags.full} stays with an earlier build: {digest} is {tag}")
    if current == digest:
        manifest = means.persist(lambda: push.read_back(repository, tag, digest))
        there = push.Traffic(there=sum(layer.size for layer in manifest.layers()))
        return Arrival(manifest, there, pushed=False, tag=tag)
    _check_compression(digest, place, means)
    made = means.persist(lambda: place.kind.prepare(repository.name, item.tags.moving())).made
    for line in made:
        means.watcher.line(f"{place.name}: made {line}")
    means.watcher.line(f"{place.name}: pushing {repository.ref}:{tag}")
    arrived = push.push(means.engine(), digest, repository, tag, means.pace, means.watcher.moved, means.watcher.line)
    return Arrival(arrived.manifest, arrived.traffic, pushed=True, tag=tag, made=made)


def _check_compression(digest: str, place: Destination, means: Means) -> None:
    """Raise ConflictError before a byte is sent when the registry's users could not pull the layers."""
    if place.compression == "any":
        return
    means.watcher.line(f"{place.name}: reading the layers' types, for it takes {place.compression} only")
    if types := unwanted(local.manifest(means.engine(), digest), place.compression):
        raise faults.ConflictError(
            f"{place.name} takes layers of {place.compression} only (compression in registries.yaml), and {digest} has "
            f"{', '.join(types)}: build it with that compression, or change registries.yaml"
        )


def _attach(
    item: Item, manifest: Manifest, repository: Repository, means: Means, believed: Believed
) -> tuple[tuple[Artifact, ...], tuple[Attached, ...]]:
    """Attach provenance, bill of materials and report; what they are, and what became of each."""

    def act() -> tuple[tuple[Artifact, ...], tuple[Attached, ...]]:
        labels = labels_of(repository.config(manifest))
        files = artifacts(item, labels)
        return files, attach(files, manifest.descriptor, repository, believed)

    return means.persist(act)


def _signed_before(signer: keys.Signer, item: Item, place: Destination, repository: Repository) -> bool:
    before = load(item.image.id)
    known = before.places.get(place.name) if before is not None and before.digest == item.build.digest else None
    if known is None or known.signed_by != keys.name_of(signer.key):
        return False
    stem = fallback_tag(item.build.digest)
    return all(repository.head(f"{stem}.{kind}") for kind in ("sig", "att"))


def move_tags(item: Item, done: Place, place: Destination, means: Means) -> Place:
    """Point the short tags to the image, now that everything before has arrived; the place with the tags it has."""
    repository = place.repository(item.image.target)
    if item.tags.joint is not None:  # they belong to the index over the platforms
        return done
    moved = means.persist(partial(move, item.tags.short, item.build.digest, repository, means.watcher.line))
    return replace(done, tags=(*done.tags, *moved))
