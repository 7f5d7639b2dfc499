"""Join what was published for each platform of an image as one index, under the plain tag."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Image
from rdma_images.plan.matrix import Matrix
from rdma_images.publish import publication
from rdma_images.publish.destination import Destination, open_destination
from rdma_images.publish.repair import digest_under
from rdma_images.publish.send import Publisher
from rdma_images.publish.tags import REHEARSAL, Tags, advance_tags, image_tags, unique_tag
from rdma_images.registry import client, registry_errors
from rdma_images.registry.client import Descriptor, Manifest, Repository
from rdma_images.registry.registries import Registry


@dataclass(frozen=True)
class JoinResult:
    """An index in a registry, or why it is not there."""

    registry: str
    tag: str
    ref: str = ""  # "host/repository@sha256:…"
    platforms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    error: str = ""


Members = Mapping[str, tuple[Image, Tags]]  # by platform


def groups(images: Sequence[Image], matrix: Matrix) -> dict[tuple[str, str], dict[str, tuple[Image, Tags]]]:
    """Return the images of several platforms, by (target, joint tag), then by platform."""
    by_tag: dict[tuple[str, str], dict[str, tuple[Image, Tags]]] = {}
    for image in images:
        tags = image_tags(image, images, matrix, rehearsal=False)
        if tags.joint is not None:
            by_tag.setdefault((image.target, tags.joint), {})[image.platform] = (image, tags)
    return by_tag


def join(
    images: Sequence[Image], matrix: Matrix, registries: Mapping[str, Registry], publisher: Publisher
) -> tuple[JoinResult, ...]:
    """Join the platforms of every image in every registry, and return each result.

    An image is joined when its publication.json here names it, or when all that `invoke verify` checks holds with the
    signer's own signature: whoever may push may also have moved a tag.
    """
    results = []
    for name, registry in registries.items():
        for (target, tag), members in groups(images, matrix).items():
            try:
                results.append(_join(target, tag, members, open_destination(name, registry), publisher))
            except RdmaImagesError as error:
                results.append(JoinResult(name, tag, error=str(error)))
    return tuple(results)


def _join(target: str, tag: str, members: Members, destination: Destination, publisher: Publisher) -> JoinResult:
    repository = destination.repository(target)
    ending = REHEARSAL if any(_is_rehearsal(image) for image, _ in members.values()) else ""
    tag += ending
    index = _index(
        {
            platform: publisher.retry(
                partial(_platform_image, image, platform_tags.full, destination, repository, publisher)
            )
            for platform, (image, platform_tags) in sorted(members.items())
        }
    )
    current = publisher.retry(partial(digest_under, tag, repository))
    full_tag = unique_tag(tag, index.digest) if destination.immutable and current not in (None, index.digest) else tag
    publisher.retry(partial(repository.put_manifest, index.digest, index))
    image_signer = publisher.signing(destination, repository, index.digest)
    if image_signer and not publisher.retry(partial(image_signer.has_signed, ())):
        image_signer.sign((), publisher.retry)
    if publisher.retry(partial(digest_under, full_tag, repository)) != index.digest:
        publisher.retry(partial(repository.put_manifest, full_tag, index))
    short_tags = tuple(
        dict.fromkeys(name + ending for _, platform_tags in members.values() for name in platform_tags.short)
    )
    moved_tags = publisher.retry(
        partial(advance_tags, short_tags, index.digest, repository, publisher.display.write_line)
    )
    return JoinResult(
        destination.name, tag, f"{repository.ref}@{index.digest}", tuple(sorted(members)), (full_tag, *moved_tags)
    )


def _is_rehearsal(image: Image) -> bool:
    """Return whether stand-ins are in what was published of an image here."""
    record = publication.PUBLICATION.read_if_valid(image.id)
    return record is not None and bool(record.rehearsal)


def _platform_image(
    image: Image, tag: str, destination: Destination, repository: Repository, publisher: Publisher
) -> Manifest:
    """Return the image of one platform.

    Raises MissingError while it is not there, RefusedError for one without evidence.
    """
    record = publication.PUBLICATION.read_if_valid(image.id)
    copy = record.copies.get(destination.name) if record is not None else None
    if record is None or copy is None or copy.ref != f"{repository.ref}@{record.digest}":
        return _published_elsewhere(image, tag, destination, repository, publisher)
    if publisher.signer is not None and copy.signed_by is None:
        raise RefusedError(f"{copy.ref} is not signed, but its index would be\npublish it with --sign")
    if (current := repository.head(copy.tags[0])) != record.digest:
        raise registry_errors.ConflictError(
            f"{repository.ref}:{copy.tags[0]} is {current or 'not there'}, but {record.digest} was published here\n"
            "publish again, or join where it was published last"
        )
    return repository.manifest(record.digest)


def _published_elsewhere(
    image: Image, tag: str, destination: Destination, repository: Repository, publisher: Publisher
) -> Manifest:
    """Return what `tag` leads to where the signer's signature covers all its evidence."""
    try:
        manifest = repository.manifest(tag)
    except registry_errors.MissingError:
        raise registry_errors.MissingError(
            f"{repository.ref} has no {tag} yet\npublish {image.platform} first"
        ) from None
    image_signer = publisher.signing(destination, repository, manifest.digest)
    if image_signer is None:
        raise RefusedError(
            f"{repository.ref}:{tag} was not published here (no publication.json names it), and --sign is missing\n"
            "join where it was published, or with --sign and the key that signed it"
        )
    if problems := image_signer.problems(manifest, tag):
        raise RefusedError(
            f"{repository.ref}:{tag} was not published here, and its evidence has problems: {'; '.join(problems)}\n"
            "publish it again with this signer, or join with the one that signed it"
        )
    return manifest


def _index(members: Mapping[str, Manifest]) -> Manifest:
    """Return the index over the images, by platform."""
    entries = []
    for platform, manifest in members.items():
        system, _, architecture = platform.partition("/")
        names = {"os": system, "architecture": architecture}
        entries.append(Descriptor(manifest.media_type, manifest.digest, len(manifest.raw), platform=names))
    return client.index(entries)
