"""Publish one image to one registry: push, read back, attach, sign; steps that are done are left out."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from rdma_images.core.paths import COMMAND
from rdma_images.engine import docker_command
from rdma_images.publish import gate, keys, push
from rdma_images.publish.approved_image import ApprovedImage, artifacts
from rdma_images.publish.attach import Artifact, Attachment, IsTrusted, attach, trust_all
from rdma_images.publish.destination import Destination
from rdma_images.publish.mount_layers import mount_wheel_layers
from rdma_images.publish.publication import PublishedCopy
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.stargz import publish_stargz
from rdma_images.publish.tags import advance_tags, unique_tag
from rdma_images.registry.client import Manifest, Repository, labels_in


@dataclass(frozen=True)
class PushedImage:
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
    current = repository.find_digest(full_tag)
    if current in (None, digest) or not destination.immutable:
        return full_tag, current
    tag = unique_tag(full_tag, digest)
    return tag, repository.find_digest(tag)


def send(approved: ApprovedImage, destination: Destination, publisher: Publisher) -> PublishedCopy:
    """Publish an image with its attachments and signature, but no short tags.

    Raises a RegistryError or RefusedError; what has arrived until then stays, and the next run sends the rest.
    """
    gate.check_rehearsal_host(approved.build, destination.kind.host)
    repository = destination.repository(approved.image.target)
    remote = _find_or_push(approved, destination, repository, publisher)
    image_signer = publisher.signing(destination, repository, approved.build.digest)
    files, attached = _attach(
        approved, remote, repository, publisher, image_signer.is_trusted if image_signer else trust_all
    )
    if publisher.signer and image_signer:
        own_artifacts = [row for row, attachment in zip(files, attached, strict=True) if not attachment.has_equal]
        has_new = any(attachment.new for attachment in attached)  # which nobody can have signed
        if has_new or not image_signer.has_signed(own_artifacts):
            image_signer.sign(own_artifacts, publisher.retry)
    converted = None
    if publisher.to_stargz:
        converted = publish_stargz(remote.manifest, remote.tag, destination, repository, publisher)
    return PublishedCopy(
        registry=destination.name,
        ref=f"{repository.ref}@{approved.build.digest}",
        tags=(remote.tag,),
        result="pushed" if remote.pushed else "present",
        media_type=remote.manifest.media_type,
        layers=len(remote.manifest.layers()),
        bytes=sum(layer.size for layer in remote.manifest.layers()),
        traffic=remote.traffic,
        attached=attached,
        signed_by=keys.key_label(publisher.signer.key) if publisher.signer else None,
        created=remote.created,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        stargz=converted,
    )


def _find_or_push(
    approved: ApprovedImage, destination: Destination, repository: Repository, publisher: Publisher
) -> PushedImage:
    """Return the image under its tag, pushed where it is not in the registry yet."""
    digest = approved.build.digest
    tag, current = publisher.retry(partial(_target_tag, approved, destination, repository))
    if tag != approved.tags.full:
        publisher.progress(f"{destination.name}: {approved.tags.full} stays with an earlier build: {digest} is {tag}")
    if current == digest:
        manifest = publisher.retry(lambda: push.read_back(repository, tag, digest))
        traffic = push.LayerTraffic(present=sum(layer.size for layer in manifest.layers()))
        return PushedImage(manifest, traffic, pushed=False, tag=tag)
    created = publisher.retry(lambda: destination.kind.ensure_repository(repository.name, approved.tags.short))
    for line in created:
        publisher.progress(f"{destination.name}: made {line}")
    mounted = mount_wheel_layers(approved, destination, repository, publisher.progress)
    publisher.progress(f"{destination.name}: pushing {repository.ref}:{tag}")
    engine = publisher.engine()
    if planned := approved.planned:
        command = f"{COMMAND} build {planned.options}"
        docker_command.build_reference(approved.build, engine, command, publisher.progress)
    manifest, traffic = push.push_image(
        engine, digest, repository, tag, publisher.push_policy, publisher.progress, mounted
    )
    return PushedImage(manifest, traffic, pushed=True, tag=tag, created=created)


def _attach(
    approved: ApprovedImage, remote: PushedImage, repository: Repository, publisher: Publisher, is_trusted: IsTrusted
) -> tuple[tuple[Artifact, ...], tuple[Attachment, ...]]:
    """Attach the evidence; return the artifacts, and each result."""
    manifest = remote.manifest

    def attach_all() -> tuple[tuple[Artifact, ...], tuple[Attachment, ...]]:
        labels = labels_in(repository.config(manifest))
        files = artifacts(approved, labels)
        return files, attach(files, manifest.descriptor, repository, is_trusted)

    return publisher.retry(attach_all)


def move_tags(
    approved: ApprovedImage, copy: PublishedCopy, destination: Destination, publisher: Publisher
) -> PublishedCopy:
    """Point the short tags to an arrived image; return the copy with its tags."""
    repository = destination.repository(approved.image.target)
    if approved.tags.multi_platform is not None:  # they belong to the index over the platforms
        return copy
    moved_tags = publisher.retry(
        partial(advance_tags, approved.tags.short, approved.build.digest, repository, publisher.progress)
    )
    return replace(copy, tags=(*copy.tags, *moved_tags))
