"""Find images in registries, by the tags that `publish` gives them."""

from collections.abc import Iterator, Mapping, Sequence

from rdma_images.core.image import Image
from rdma_images.plan.matrix import Matrix
from rdma_images.publish.destination import open_destination
from rdma_images.publish.evidence.scanner import ScannedImage
from rdma_images.publish.tags import image_tags
from rdma_images.registry.registries import Registry


def published_images(
    images: Sequence[Image], all_images: Sequence[Image], matrix: Matrix, registries: Mapping[str, Registry]
) -> Iterator[ScannedImage]:
    """Yield what each image's short tag points to in each registry; for an index, what its full tag points to.

    Raises RegistryError where a registry does not answer, or has no such image.
    """
    for name, registry in registries.items():
        destination = open_destination(name, registry)
        for image in images:
            tags = image_tags(image, all_images, matrix, rehearsal=False)
            repository = destination.repository(image.target)
            manifest = repository.manifest(tags.short[-1] if tags.short and not tags.multi_platform else tags.full)
            yield ScannedImage(f"{repository.ref}@{manifest.digest}", manifest.digest)
