"""Find images in registries: by the tags that `publish` gives them, and by digest."""

from collections.abc import Mapping, Sequence

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.plan.matrix import Matrix
from rdma_images.publish.destination import open_destination, open_repository
from rdma_images.publish.evidence.scanner import ScannedImage
from rdma_images.publish.tags import image_tags
from rdma_images.registry.reference import parse_reference
from rdma_images.registry.registries import Registry


def find_published(ref: str, registry: Registry) -> ScannedImage:
    """Return the image that `ref` leads to, by its digest.

    Raises:
        RefusedError: It is an index over several platforms.
        RegistryError: The registry does not answer, or has no such image.
    """
    reference = parse_reference(ref)
    repository = open_repository(reference, registry)
    manifest = repository.manifest(reference.selector)
    if manifest.is_index:
        platforms = ", ".join(f"{repository.ref}@{member.digest}" for member in manifest.members())
        raise RefusedError(f"{ref}: is an index over several platforms\nname one of them: {platforms}")
    return ScannedImage(f"{repository.ref}@{manifest.digest}", manifest.digest)


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
