"""Read what is in a registry of an image: its digest, its layers and its attached report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.inspection.report import Report, decode_report
from rdma_images.plan.matrix import Matrix
from rdma_images.publish import statement
from rdma_images.publish.attach import FORM, newest_first, read_content
from rdma_images.publish.destination import open_destination, open_repository
from rdma_images.publish.tags import image_tags
from rdma_images.registry.client import Manifest, Repository, config_diff_ids
from rdma_images.registry.reference import parse_reference
from rdma_images.registry.registries import Registry


@dataclass(frozen=True)
class PublishedImage:
    """An image in a registry."""

    ref: str  # by digest
    digest: str
    layers: tuple[str, ...]  # digests of the uncompressed layers, lowest first
    repository: Repository
    manifest: Manifest
    config: Mapping[str, Any]

    def predicate(self, form: str) -> dict[str, Any]:
        """Return the newest attachment of a form. Raises ValueError where there is none."""
        entries = [entry for entry in newest_first(self.repository, self.digest) if entry.annotations.get(FORM) == form]
        newest, *_ = entries
        return statement.parse_predicate(read_content(self.repository, newest.digest))

    def report(self) -> Report:
        """Return the newest report that is attached. Raises RefusedError where none can be read."""
        try:
            report = decode_report(self.predicate(statement.REPORT)["report"])
        except (ValueError, KeyError, TypeError):
            raise RefusedError(f"{self.ref}: has no report attached that can be read\npublish it again") from None
        if report.digest != self.digest:
            raise RefusedError(f"{self.ref}: the report attached is about {report.digest}\npublish it again")
        return report


def read_published(ref: str, registry: Registry) -> PublishedImage:
    """Return the image that `ref` leads to.

    Raises:
        RefusedError: It is an index over several platforms.
        PublishError: The registry does not answer, or has no such image.
    """
    reference = parse_reference(ref)
    repository = open_repository(reference, registry)
    manifest = repository.manifest(reference.selector)
    if manifest.is_index:
        platforms = ", ".join(f"{repository.ref}@{member.digest}" for member in manifest.members())
        raise RefusedError(f"{ref}: is an index over several platforms\nname one of them: {platforms}")
    config = repository.config(manifest)
    ref = f"{repository.ref}@{manifest.digest}"
    return PublishedImage(ref, manifest.digest, config_diff_ids(config), repository, manifest, config)


def published_refs(
    images: Sequence[Image], all_images: Sequence[Image], matrix: Matrix, registries: Mapping[str, Registry]
) -> list[str]:
    """Return each image's reference in each registry, by its short, moving tag."""
    refs = []
    for name, registry in registries.items():
        destination = open_destination(name, registry)
        for image in images:
            tags = image_tags(image, all_images, matrix, rehearsal=False)
            tag = tags.short[-1] if tags.short and not tags.joint else tags.full
            refs.append(f"{destination.repository(image.target).ref}:{tag}")
    return refs
