"""Join the published platforms of an image under one tag, with `docker buildx imagetools`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Image
from rdma_images.core.paths import COMMAND
from rdma_images.engine import docker_command
from rdma_images.plan.matrix import Matrix
from rdma_images.publish.destination import Destination, open_destination
from rdma_images.publish.publication import PUBLICATION, PublishedCopy
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.tags import REHEARSAL, Tags, advance_tags, image_tags, unique_tag
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Repository
from rdma_images.registry.credentials import docker_environment
from rdma_images.registry.registries import Registry

JoinedImages = Sequence[tuple[Image, Tags]]  # the images that one tag joins, ordered by platform


@dataclass(frozen=True)
class JoinResult:
    """An index in a registry, or why it is not there."""

    registry: str
    tag: str
    ref: str = ""  # "host/repository@sha256:…"
    error: str = ""


def join(
    images: Sequence[Image], matrix: Matrix, registries: Mapping[str, Registry], publisher: Publisher
) -> Iterator[JoinResult]:
    """Join each image of several platforms in each registry, sign the index, and move its short tags.

    An index lists the digests in this folder's publication.json: whoever may push may have moved a tag.

    Args:
        images: The images of the whole matrix.
    """
    for name, registry in registries.items():
        for joined in by_multi_platform_tag(images, matrix):
            tag = str(joined[0][1].multi_platform)
            try:
                yield _join(joined, open_destination(name, registry), publisher)
            except RdmaImagesError as error:
                yield JoinResult(name, tag, error=str(error))


def by_multi_platform_tag(images: Sequence[Image], matrix: Matrix) -> list[JoinedImages]:
    """Return the images of several platforms, grouped by tag."""
    joined: dict[tuple[str, str], list[tuple[Image, Tags]]] = {}
    for image in sorted(images, key=lambda image: image.platform):
        tags = image_tags(image, images, matrix, rehearsal=False)
        if tags.multi_platform is not None:
            joined.setdefault((image.target, tags.multi_platform), []).append((image, tags))
    return list(joined.values())


def _join(joined: JoinedImages, destination: Destination, publisher: Publisher) -> JoinResult:
    copies = [_published_copy(image, destination.name) for image, _ in joined]
    repository = destination.repository(joined[0][0].target)
    ending = REHEARSAL if any(copy.tags[0].endswith(REHEARSAL) for copy in copies) else ""
    tag = f"{joined[0][1].multi_platform}{ending}"
    # Where a platform's full tag stays with an earlier build, the index's does too.
    if [copy.tags[0] for copy in copies] != [f"{tags.full}{ending}" for _, tags in joined]:
        tag = unique_tag(tag, copies[0].ref.partition("@")[2])
    if publisher.retry(partial(_members, repository, tag)) != [copy.ref for copy in copies]:
        publisher.retry(partial(_create, tag, copies, destination, repository, publisher))
    digest = publisher.retry(partial(repository.manifest, tag)).digest
    publisher.sign_index(destination, repository, digest)
    short = tuple(dict.fromkeys(f"{name}{ending}" for _, tags in joined for name in tags.short))
    publisher.retry(partial(advance_tags, short, digest, repository, publisher.progress))
    return JoinResult(destination.name, tag, f"{repository.ref}@{digest}")


def _published_copy(image: Image, registry: str) -> PublishedCopy:
    publication = PUBLICATION.read_if_valid(image.id)
    copy = publication.copies.get(registry) if publication else None
    if copy is None:
        raise RefusedError(
            f"{image.id}: no publication.json here says that it is in {registry}\n"
            f"run `{COMMAND} publish {image.options} --to {registry}` first"
        )
    return copy


def _members(repository: Repository, tag: str) -> list[str]:
    """Return the references by digest in the index `tag`; an empty list where it is missing."""
    with suppress(registry_errors.MissingError):
        return [f"{repository.ref}@{member.digest}" for member in repository.manifest(tag).members()]
    return []


def _create(
    tag: str, copies: Sequence[PublishedCopy], destination: Destination, repository: Repository, publisher: Publisher
) -> None:
    """Write the index over `copies` under `tag`. Raises RegistryError where buildx fails."""
    engine, login = publisher.engine(), destination.connection.login()
    refs = [copy.ref for copy in copies]
    with docker_environment(destination.connection.host, login, engine.environ()) as environ:
        created = docker_command.run(
            engine, "buildx", "imagetools", "create", "--tag", f"{repository.ref}:{tag}", *refs, variables=environ
        )
    if created.returncode:
        complaint = registry_errors.mask_secrets(created.stderr.strip(), [login.password] if login else ())
        raise registry_errors.RegistryError(
            f"`docker buildx imagetools create` did not write {repository.ref}:{tag}: {complaint[-400:]}\n"
            "see that each platform is still in the registry, and that its tag may be written"
        )
