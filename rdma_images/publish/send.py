"""Publish one image to one registry: push, read back, attach, sign; steps that are done are left out."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from rdma_images.core.paths import state_folder
from rdma_images.core.sizes import format_megabytes
from rdma_images.engine import Engine
from rdma_images.publish import gate, keys, push, stargz
from rdma_images.publish.approved_image import ApprovedImage, artifacts
from rdma_images.publish.attach import Artifact, Attachment, IsTrusted, attach, fallback_tag, trust_all
from rdma_images.publish.destination import LAYERS, Destination
from rdma_images.publish.publication import PUBLICATION, PublishedCopy, StargzImage
from rdma_images.publish.push_display import LineProgress
from rdma_images.publish.signing import ImageSigner
from rdma_images.publish.tags import advance_tags, unique_tag
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Manifest, Repository, labels_in

Result = TypeVar("Result")


@dataclass(frozen=True)
class Publisher:
    """The engine, display, signer and policy of a publication.

    `engine` is called only when something is sent. With `to_stargz`, each image is published a second time, converted
    for the stargz-snapshotter.
    """

    engine: Callable[[], Engine]
    display: LineProgress
    signer: keys.Signer | None = None
    push_policy: push.PushPolicy = field(default_factory=push.PushPolicy)
    to_stargz: bool = False

    def retry(self, action: Callable[[], Result]) -> Result:
        """Return the result of `action`, called again after faults that may heal."""
        return registry_errors.retry(
            action, self.push_policy.attempts, self.push_policy.first_wait, progress=self.display.write_line
        )

    def signing(self, destination: Destination, repository: Repository, digest: str) -> ImageSigner | None:
        """Return the signer of the image `digest`; None where the publication has no signer."""
        if self.signer is None:
            return None
        return ImageSigner(self.signer, destination, repository, digest, self.display.write_line)


@dataclass(frozen=True)
class Arrival:
    """An image under its tag, as it was read back, and how it got there."""

    manifest: Manifest
    traffic: push.LayerTraffic
    pushed: bool
    tag: str  # the full one, or this build's own where the full one stays with an earlier build
    created: tuple[str, ...] = ()  # what was created in the registry for it


def _target_tag(approved: ApprovedImage, destination: Destination, repository: Repository) -> tuple[str, str | None]:
    """Return the tag for the image, and the digest to which it points already.

    Where tags are immutable and an earlier build of the same versions has the full one, this build gets a unique tag.
    """
    full_tag, digest = approved.tags.full, approved.build.digest
    current = repository.head(full_tag)
    if current in (None, digest) or not destination.immutable:
        return full_tag, current
    tag = unique_tag(full_tag, digest)
    return tag, repository.head(tag)


def send(approved: ApprovedImage, destination: Destination, publisher: Publisher) -> PublishedCopy:
    """Publish an image with its attachments and signature, but no short tags.

    Raises a PublishError or RefusedError; what has arrived until then stays, and the next run sends the rest.
    """
    gate.check_rehearsal_host(approved.build, destination.kind.host)
    repository = destination.repository(approved.image.target)
    arrival = _find_or_push(approved, destination, repository, publisher)
    image_signer = publisher.signing(destination, repository, approved.build.digest)
    files, attached = _attach(
        approved, arrival, repository, publisher, image_signer.is_trusted if image_signer else trust_all
    )
    if publisher.signer and image_signer:
        unsigned = [
            artifact
            for artifact, attachment in zip(files, attached, strict=True)
            if artifact.form and not attachment.equivalent
        ]
        has_new = any(attachment.new for attachment in attached)  # which nobody can have signed
        if has_new or not (
            _was_signed_before(publisher.signer, approved, destination, repository) or image_signer.has_signed(unsigned)
        ):
            image_signer.sign(unsigned, publisher.retry)
    converted = _find_or_convert(approved, arrival, destination, repository, publisher) if publisher.to_stargz else None
    return PublishedCopy(
        registry=destination.name,
        ref=f"{repository.ref}@{approved.build.digest}",
        tags=(arrival.tag,),
        result="pushed" if arrival.pushed else "present",
        media_type=arrival.manifest.media_type,
        layers=len(arrival.manifest.layers()),
        bytes=sum(layer.size for layer in arrival.manifest.layers()),
        traffic=arrival.traffic,
        attached=attached,
        signed_by=keys.key_label(publisher.signer.key) if publisher.signer else None,
        created=arrival.created,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        stargz=converted,
    )


def _find_or_push(
    approved: ApprovedImage, destination: Destination, repository: Repository, publisher: Publisher
) -> Arrival:
    """Return the image under its tag, pushed where it is not in the registry yet."""
    digest = approved.build.digest
    tag, current = publisher.retry(partial(_target_tag, approved, destination, repository))
    if tag != approved.tags.full:
        publisher.display.write_line(
            f"{destination.name}: {approved.tags.full} stays with an earlier build: {digest} is {tag}"
        )
    if current == digest:
        manifest = publisher.retry(lambda: push.read_back(repository, tag, digest))
        traffic = push.LayerTraffic(present=sum(layer.size for layer in manifest.layers()))
        return Arrival(manifest, traffic, pushed=False, tag=tag)
    created = publisher.retry(lambda: destination.kind.prepare(repository.name, approved.tags.short)).created
    for line in created:
        publisher.display.write_line(f"{destination.name}: made {line}")
    mounted = mount_wheel_layers(approved, destination, repository, publisher.display.write_line)
    publisher.display.write_line(f"{destination.name}: pushing {repository.ref}:{tag}")
    engine, display = publisher.engine(), publisher.display
    result = push.push(
        engine, digest, repository, tag, publisher.push_policy, display.update, display.write_line, mounted
    )
    return Arrival(result.manifest, result.traffic, pushed=True, tag=tag, created=created)


def _attach(
    approved: ApprovedImage, arrival: Arrival, repository: Repository, publisher: Publisher, is_trusted: IsTrusted
) -> tuple[tuple[Artifact, ...], tuple[Attachment, ...]]:
    """Attach the evidence; return the artifacts, and each result."""
    manifest = arrival.manifest

    def attach_all() -> tuple[tuple[Artifact, ...], tuple[Attachment, ...]]:
        labels = labels_in(repository.config(manifest))
        files = artifacts(approved, labels)
        return files, attach(files, manifest.descriptor, repository, is_trusted)

    return publisher.retry(attach_all)


def _find_or_convert(
    approved: ApprovedImage,
    arrival: Arrival,
    destination: Destination,
    repository: Repository,
    publisher: Publisher,
) -> StargzImage:
    """Return the converted image beside the original.

    What its tag leads to stays, where it is of this image and, with a signer, carries the same signer's signature: a
    later version may convert to other bytes.
    """
    stargz.require_zstd(arrival.manifest)
    tag = stargz.stargz_tag(arrival.tag)
    current = publisher.retry(partial(repository.head, tag))
    if current and publisher.retry(partial(_is_converted, approved, current, destination, repository, publisher)):
        return StargzImage(f"{repository.ref}@{current}", tag, "present")
    publisher.display.write_line(f"{destination.name}: converting {approved.build.digest} for the stargz-snapshotter")
    state_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stargz-", dir=state_folder()) as scratch:
        converted = publisher.retry(partial(stargz.convert, arrival.manifest, repository, Path(scratch)))
        if current and current != converted.index.digest and destination.immutable:
            raise registry_errors.ConflictError(
                f"{repository.ref}:{tag} is {current}, which this signer has not signed, and tags do not change there\n"
                "have it deleted in the registry, and publish again"
            )
        publisher.retry(partial(_put_converted, converted, repository))
    image_signer = publisher.signing(destination, repository, converted.index.digest)
    if image_signer and not publisher.retry(partial(image_signer.has_signed, ())):
        image_signer.sign((), publisher.retry)
    publisher.retry(partial(repository.put_manifest, tag, converted.index))
    return StargzImage(f"{repository.ref}@{converted.index.digest}", tag, "pushed")


def _is_converted(
    approved: ApprovedImage, digest: str, destination: Destination, repository: Repository, publisher: Publisher
) -> bool:
    """Return whether the index `digest` is this image, converted, by this signer."""
    if approved.build.digest not in stargz.originals(repository.manifest(digest)).values():
        return False
    image_signer = publisher.signing(destination, repository, digest)
    return image_signer is None or image_signer.has_signed(())


def _put_converted(converted: stargz.ConvertedImage, repository: Repository) -> None:
    """Send the layers and manifests of a converted image that the registry lacks, without a tag."""
    for digest, path in converted.files.items():
        repository.put_file(digest, path)
    for manifest in (converted.image, converted.index):
        repository.put_manifest(manifest.digest, manifest)


def _was_signed_before(
    signer: keys.Signer, approved: ApprovedImage, destination: Destination, repository: Repository
) -> bool:
    publication = PUBLICATION.read_if_valid(approved.image.id)
    copy = (
        publication.copies.get(destination.name)
        if publication is not None and publication.digest == approved.build.digest
        else None
    )
    if copy is None or copy.signed_by != keys.key_label(signer.key):
        return False
    stem = fallback_tag(approved.build.digest)
    return all(repository.head(f"{stem}.{kind}") for kind in ("sig", "att"))


def move_tags(
    approved: ApprovedImage, copy: PublishedCopy, destination: Destination, publisher: Publisher
) -> PublishedCopy:
    """Point the short tags to an arrived image; return the copy with its tags."""
    repository = destination.repository(approved.image.target)
    if approved.tags.joint is not None:  # they belong to the index over the platforms
        return copy
    moved_tags = publisher.retry(
        partial(advance_tags, approved.tags.short, approved.build.digest, repository, publisher.display.write_line)
    )
    return replace(copy, tags=(*copy.tags, *moved_tags))


def mount_wheel_layers(
    approved: ApprovedImage, destination: Destination, repository: Repository, progress: Callable[[str], None]
) -> frozenset[str]:
    """Have a registry mount wheel layers that it has in other repositories.

    docker itself mounts only what it pulled or pushed before, and not what BuildKit pulled or another machine sent.
    What fails here is not an error: docker asks for each layer, and sends what is missing.

    Returns:
        The digests of the layers that the repository has now without sending.
    """
    mounted: dict[str, int] = {}
    with suppress(registry_errors.PublishError):
        missing_layers = dict(approved.build.layers)
        missing_layers = {
            digest: missing_layers[digest]
            for digest in missing_layers.keys() - _present_layers(repository, missing_layers)
        }
        for source in _layer_repositories(approved, destination):
            for digest in _present_layers(source, missing_layers):
                if not repository.mount(digest, source):
                    progress(
                        f"{destination.name}: mounts nothing from {source.ref}, so that the wheels' layers are sent"
                    )
                    return frozenset(mounted)
                mounted[digest] = missing_layers.pop(digest)
    if mounted:
        progress(
            f"{destination.name}: {format_megabytes(sum(mounted.values()))} of wheels' layers were in the registry"
        )
    return frozenset(mounted)


def _layer_repositories(approved: ApprovedImage, destination: Destination) -> Iterator[Repository]:
    """Yield the repositories that may have wheel layers, the likeliest first."""
    host, _, name = approved.build.layers_at.partition("/")
    if host == destination.connection.host:
        yield Repository(destination.connection, name)
    for target in (LAYERS, *approved.other_targets):
        yield destination.repository(target)


def _present_layers(repository: Repository, layers: Mapping[str, int]) -> set[str]:
    """Return which of `layers` a repository has; an empty set where it does not answer."""
    with suppress(registry_errors.PublishError):
        return repository.present_blobs(layers)
    return set()
