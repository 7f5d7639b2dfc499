"""Several platforms of one image as one index: what was published for each is joined under the plain tag."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rdma_images.errors import RdmaImagesError, RefusedError
from rdma_images.matrix import Matrix
from rdma_images.model import Image
from rdma_images.publish import faults, publication
from rdma_images.publish.client import OCI_INDEX, Descriptor, Manifest, Repository, canonical
from rdma_images.publish.destination import Destination, destination
from rdma_images.publish.mend import digest_under
from rdma_images.publish.moving import move
from rdma_images.publish.registries import Registry
from rdma_images.publish.seal import Seal
from rdma_images.publish.send import Means
from rdma_images.publish.tags import Tags, own, tags


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
    images: Sequence[Image], matrix: Matrix, registries: Mapping[str, Registry], means: Means
) -> tuple[Joined, ...]:
    """Join the platforms of every image of the whole matrix in every registry; each outcome is in the answer.

    An image is joined when its publication.json here names it, or when all that `invoke verify` looks at holds with the
    signer's own signature: whoever may push may also have moved a tag.
    """
    outcomes = []
    for name, registry in registries.items():
        for (target, tag), members in groups(images, matrix).items():
            try:
                outcomes.append(_join(target, tag, members, destination(name, registry), means))
            except RdmaImagesError as error:
                outcomes.append(Joined(name, tag, error=str(error)))
    return tuple(outcomes)


def _join(target: str, tag: str, members: Members, place: Destination, means: Means) -> Joined:
    repository = place.repository(target)
    index = _index(
        {
            platform: means.persist(partial(_member, image, its.full, place, repository, means))
            for platform, (image, its) in sorted(members.items())
        }
    )
    current = means.persist(partial(digest_under, tag, repository))
    full = own(tag, index.digest) if place.immutable and current not in (None, index.digest) else tag
    means.persist(partial(repository.put_manifest, index.digest, index))
    if means.signer is not None:
        seal = Seal(means.signer, place, repository, index.digest, means.watcher.line)
        if not means.persist(partial(seal.is_on, ())):
            seal.put((), means.persist)
    if means.persist(partial(digest_under, full, repository)) != index.digest:
        means.persist(partial(repository.put_manifest, full, index))
    short = tuple(dict.fromkeys(name for _, its in members.values() for name in its.short))
    moved = means.persist(partial(move, short, index.digest, repository, means.watcher.line))
    return Joined(place.name, tag, f"{repository.ref}@{index.digest}", tuple(sorted(members)), (full, *moved))


def _member(image: Image, tag: str, place: Destination, repository: Repository, means: Means) -> Manifest:
    """The image of one platform. Raises MissingError while it is not there, RefusedError for one that nobody proved."""
    known = publication.load(image.id)
    published = known.places.get(place.name) if known is not None else None
    if known is None or published is None or published.ref != f"{repository.ref}@{known.digest}":
        return _proven(image, tag, place, repository, means)
    if means.signer is not None and published.signed_by is None:
        raise RefusedError(f"{published.ref} is not signed, and its index is to be: publish it with --sign")
    if (there := repository.head(published.tags[0])) != known.digest:
        raise faults.ConflictError(
            f"{repository.ref}:{published.tags[0]} is {there or 'not there'}, but {known.digest} was published here: "
            "publish again, or join where it was published last"
        )
    return repository.manifest(known.digest)


def _proven(image: Image, tag: str, place: Destination, repository: Repository, means: Means) -> Manifest:
    """What `tag` leads to, which was published elsewhere, when the signer's own signature says that it is proven."""
    try:
        found = repository.manifest(tag)
    except faults.MissingError:
        raise faults.MissingError(f"{repository.ref} has no {tag} yet: publish {image.platform} first") from None
    if means.signer is None:
        raise RefusedError(
            f"{repository.ref}:{tag} was not published here (no publication.json names it), and nobody is to sign: "
            "join where it was published, or with --sign and the key that signed it"
        )
    seal = Seal(means.signer, place, repository, found.digest, means.watcher.line)
    if wrong := seal.doubts(found, tag):
        raise RefusedError(f"{repository.ref}:{tag} was not published here, and is not proven: {'; '.join(wrong)}")
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
