"""Several platforms of one image as one index: what was published for each is joined under the plain tag."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.pipeline import Image
from rdma_images.plan.matrix import Matrix
from rdma_images.publish import publication
from rdma_images.publish.destination import Destination, destination
from rdma_images.publish.moving_tags import move
from rdma_images.publish.repair import digest_under
from rdma_images.publish.send import Publisher
from rdma_images.publish.signing import ImageSigner
from rdma_images.publish.tags import REHEARSAL, Tags, own, tags
from rdma_images.registry import faults
from rdma_images.registry.client import OCI_INDEX, Descriptor, Manifest, Repository, canonical
from rdma_images.registry.registries import Registry


@dataclass(frozen=True)
class Joined:
    """An index that is in a registry, or why it is not."""

    registry: str
    tag: str
    ref: str = ""  # "host/repository@sha256:…"
    platforms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    error: str = ""


Members = Mapping[str, tuple[Image, Tags]]  # by platform


def groups(images: Sequence[Image], matrix: Matrix) -> dict[tuple[str, str], dict[str, tuple[Image, Tags]]]:
    """(target, joint tag) -> platform -> image and tags, of those images that have several platforms."""
    found: dict[tuple[str, str], dict[str, tuple[Image, Tags]]] = {}
    for image in images:
        its = tags(image, images, matrix, rehearsal=False)
        if its.joint is not None:
            found.setdefault((image.target, its.joint), {})[image.platform] = (image, its)
    return found


def join(
    images: Sequence[Image], matrix: Matrix, registries: Mapping[str, Registry], publisher: Publisher
) -> tuple[Joined, ...]:
    """Join the platforms of every image of the whole matrix in every registry; each outcome is in the answer.

    An image is joined when its publication.json here names it, or when all that `invoke verify` looks at holds with the
    signer's own signature: whoever may push may also have moved a tag.
    """
    outcomes = []
    for name, registry in registries.items():
        for (target, tag), members in groups(images, matrix).items():
            try:
                outcomes.append(_join(target, tag, members, destination(name, registry), publisher))
            except RdmaImagesError as error:
                outcomes.append(Joined(name, tag, error=str(error)))
    return tuple(outcomes)


def _join(target: str, tag: str, members: Members, place: Destination, publisher: Publisher) -> Joined:
    repository = place.repository(target)
    ending = REHEARSAL if any(_is_rehearsal(image) for image, _ in members.values()) else ""
    tag += ending
    index = _index(
        {
            platform: publisher.retry(partial(_member, image, its.full, place, repository, publisher))
            for platform, (image, its) in sorted(members.items())
        }
    )
    current = publisher.retry(partial(digest_under, tag, repository))
    full = own(tag, index.digest) if place.immutable and current not in (None, index.digest) else tag
    publisher.retry(partial(repository.put_manifest, index.digest, index))
    if publisher.signer is not None:
        signing = ImageSigner(publisher.signer, place, repository, index.digest, publisher.watcher.line)
        if not publisher.retry(partial(signing.has_signed, ())):
            signing.sign((), publisher.retry)
    if publisher.retry(partial(digest_under, full, repository)) != index.digest:
        publisher.retry(partial(repository.put_manifest, full, index))
    short = tuple(dict.fromkeys(name + ending for _, its in members.values() for name in its.short))
    moved = publisher.retry(partial(move, short, index.digest, repository, publisher.watcher.line))
    return Joined(place.name, tag, f"{repository.ref}@{index.digest}", tuple(sorted(members)), (full, *moved))


def _is_rehearsal(image: Image) -> bool:
    """Whether stand-ins are in what was published of an image here."""
    known = publication.PUBLICATION.usable(image.id)
    return known is not None and bool(known.rehearsal)


def _member(image: Image, tag: str, place: Destination, repository: Repository, publisher: Publisher) -> Manifest:
    """The image of one platform. Raises MissingError while it is not there, RefusedError for one without evidence."""
    known = publication.PUBLICATION.usable(image.id)
    published = known.places.get(place.name) if known is not None else None
    if known is None or published is None or published.ref != f"{repository.ref}@{known.digest}":
        return _published_elsewhere(image, tag, place, repository, publisher)
    if publisher.signer is not None and published.signed_by is None:
        raise RefusedError(f"{published.ref} is not signed, but its index would be\npublish it with --sign")
    if (there := repository.head(published.tags[0])) != known.digest:
        raise faults.ConflictError(
            f"{repository.ref}:{published.tags[0]} is {there or 'not there'}, but {known.digest} was published here\n"
            "publish again, or join where it was published last"
        )
    return repository.manifest(known.digest)


def _published_elsewhere(
    image: Image, tag: str, place: Destination, repository: Repository, publisher: Publisher
) -> Manifest:
    """What `tag` leads to, which was published elsewhere, when the signer's own signature covers all its evidence."""
    try:
        found = repository.manifest(tag)
    except faults.MissingError:
        raise faults.MissingError(f"{repository.ref} has no {tag} yet\npublish {image.platform} first") from None
    if publisher.signer is None:
        raise RefusedError(
            f"{repository.ref}:{tag} was not published here (no publication.json names it), and --sign is missing\n"
            "join where it was published, or with --sign and the key that signed it"
        )
    signing = ImageSigner(publisher.signer, place, repository, found.digest, publisher.watcher.line)
    if wrong := signing.problems(found, tag):
        raise RefusedError(
            f"{repository.ref}:{tag} was not published here, and its evidence has problems: {'; '.join(wrong)}\n"
            "publish it again with this signer, or join with the one that signed it"
        )
    return found


def _index(members: Mapping[str, Manifest]) -> Manifest:
    """The index over the images, by platform."""
    entries = []
    for platform, found in members.items():
        system, _, architecture = platform.partition("/")
        described = Descriptor(
            found.media_type, found.digest, len(found.raw), platform={"os": system, "architecture": architecture}
        )
        entries.append(described.as_json())
    body = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    return Manifest(OCI_INDEX, canonical(body))
