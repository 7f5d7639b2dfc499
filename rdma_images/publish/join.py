"""Several platforms of one image as one index: what was published for each is joined under the plain tag."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rdma_images.errors import RdmaImagesError
from rdma_images.matrix import Matrix
from rdma_images.model import Image
from rdma_images.publish import cosign, faults
from rdma_images.publish.client import OCI_INDEX, Descriptor, Manifest, Repository, canonical
from rdma_images.publish.destination import Destination, destination
from rdma_images.publish.registries import Registry
from rdma_images.publish.send import Means
from rdma_images.publish.tags import Tags, tags


@dataclass(frozen=True)
class Joined:
    """An index that is in a registry, or why it is not."""

    registry: str
    tag: str
    ref: str = ""  # "host/repository@sha256:…"
    platforms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    error: str = ""


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
    """Join the platforms of every image of the whole matrix in every registry; each outcome is in the answer."""
    outcomes = []
    for name, registry in registries.items():
        for (target, tag), members in groups(images, matrix).items():
            try:
                outcomes.append(_join(target, tag, members, destination(name, registry), means))
            except RdmaImagesError as error:
                outcomes.append(Joined(name, tag, error=str(error)))
    return tuple(outcomes)


def _join(target: str, tag: str, members: Mapping[str, tuple[Image, Tags]], place: Destination, means: Means) -> Joined:
    repository = place.repository(target)
    index = means.persist(lambda: _index(repository, members))
    current = means.persist(lambda: repository.head(tag))
    if current not in (None, index.digest) and place.immutable:
        raise faults.ConflictError(
            f"{repository.ref}:{tag} is {current} already, and tags of {place.name} do not change"
        )
    means.persist(lambda: repository.put_manifest(index.digest, index))
    if means.signer is not None:
        signing = cosign.Cosign(cosign.program(means.watcher.line), place.kind.host, place.connection.login())
        signing.sign(f"{repository.ref}@{index.digest}", means.signer)
    short = tuple(dict.fromkeys(name for _, its in members.values() for name in its.short))
    for name in (tag, *short):
        if repository.head(name) != index.digest:
            repository.put_manifest(name, index)
    return Joined(place.name, tag, f"{repository.ref}@{index.digest}", tuple(sorted(members)), (tag, *short))


def _index(repository: Repository, members: Mapping[str, tuple[Image, Tags]]) -> Manifest:
    """The index over what the registry has. Raises MissingError while a platform is not there."""
    entries = []
    for platform, (_, its) in sorted(members.items()):
        if repository.head(its.full) is None:
            raise faults.MissingError(f"{repository.ref} has no {its.full} yet: publish {platform} first")
        found = repository.manifest(its.full)
        system, _, architecture = platform.partition("/")
        described = Descriptor(
            found.media_type, found.digest, len(found.raw), platform={"os": system, "architecture": architecture}
        )
        entries.append(described.as_json())
    body = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    return Manifest(OCI_INDEX, canonical(body))
