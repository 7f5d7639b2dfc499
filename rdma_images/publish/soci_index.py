"""What SOCI's conversion makes of an image, and how it is checked: an index over the image and SOCI's own index.

Source: github.com/awslabs/soci-snapshotter v0.15.0, soci/soci_convert.go and docs/soci-index-manifest-v2.md. The image
in it has the config and the layers of the original, and one annotation more, so it has another digest.
"""

from collections.abc import Iterator, Mapping

from rdma_images.core.errors import first_line
from rdma_images.publish.attachment_checks import VerifyFinding
from rdma_images.registry import faults
from rdma_images.registry.client import Descriptor, Manifest, Repository

TYPE = "application/vnd.amazon.soci.index.v2+json"
_INDEX = "com.amazon.soci.index-digest"  # on a converted image: its SOCI index
_IMAGE = "com.amazon.soci.image-manifest-digest"  # on a SOCI index's entry: its image
_LAYER = "com.amazon.soci.image-layer-digest"  # on a table of contents: its layer


def is_soci_index(entry: Descriptor) -> bool:
    """Return whether an entry of an index leads to a SOCI index, and not to an image."""
    return entry.artifact_type == TYPE


def has_same_content(image: Manifest, other: Manifest) -> bool:
    """Return whether two manifests name the same config and the same layers in the same order."""
    contents = [
        (Descriptor.from_json(manifest.body.get("config")).digest, [layer.digest for layer in manifest.layers()])
        for manifest in (image, other)
    ]
    return contents[0] == contents[1]


def findings(repository: Repository, index: Manifest, images: Mapping[str, Manifest]) -> Iterator[VerifyFinding]:
    """Yield a result for each SOCI index in `index`; `images` are the images that it lists, by digest."""
    for entry in filter(is_soci_index, index.members()):
        try:
            yield _finding(repository, entry, images)
        except (faults.MalformedError, faults.MissingError, faults.ConflictError) as error:
            yield VerifyFinding("SOCI index", False, f"{entry.digest} cannot be read: {first_line(error)}")


def _finding(repository: Repository, entry: Descriptor, images: Mapping[str, Manifest]) -> VerifyFinding:
    image = images.get(entry.annotations.get(_IMAGE, ""))
    if image is None or (image.body.get("annotations") or {}).get(_INDEX) != entry.digest:
        return VerifyFinding("SOCI index", False, f"{entry.digest} belongs to no image of this index")
    layers = {layer.digest for layer in image.layers()}
    tables = repository.manifest(entry.digest).layers()
    if foreign := {table.annotations.get(_LAYER, "no layer") for table in tables} - layers:
        return VerifyFinding("SOCI index", False, f"{entry.digest} is about other layers: {', '.join(sorted(foreign))}")
    if missing := [table.digest for table in tables if not repository.has_blob(table.digest, table.size)]:
        return VerifyFinding("SOCI index", False, f"{entry.digest} has not arrived: {', '.join(missing)}")
    return VerifyFinding("SOCI index", True, f"{len(tables)} of {len(layers)} layers can be read in part")
