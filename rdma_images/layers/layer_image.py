"""The layers of an image's wheels as an image of their own, the first stage of a Dockerfile."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from rdma_images.core.compression import Compression
from rdma_images.core.image import LAYERS_LABEL
from rdma_images.layers.blob import Blob
from rdma_images.layers.recipe import Recipe, compressor
from rdma_images.registry.client import OCI_MANIFEST, Descriptor, Manifest, canonical, sha256_digest

REPOSITORY = "rdma-images/wheels"  # of these images in an engine
CONFIG = "application/vnd.oci.image.config.v1+json"
CREATED = "1980-01-01T00:00:00Z"


@dataclass(frozen=True)
class LayerSet:
    """The layers of one image's wheels, lowest first; `variant` is runtime or devel."""

    recipes: tuple[Recipe, ...]
    variant: str
    platform: str

    @property
    def compression(self) -> Compression:
        """Return the compression of all the layers."""
        return self.recipes[0].compression

    @property
    def tag(self) -> str:
        """Return the tag of the image of these layers in a repository."""
        keys = json.dumps([recipe.key for recipe in self.recipes])
        return f"{self.variant}-{hashlib.sha256(keys.encode()).hexdigest()[:16]}"

    @property
    def ref(self) -> str:
        """Return the name of their image in an engine."""
        return f"{REPOSITORY}:{self.tag}"


@dataclass(frozen=True)
class LoadedImage:
    """An image of layers where a build takes it; `ref` in an engine or a registry."""

    ref: str
    blobs: tuple[Blob, ...]


@dataclass(frozen=True)
class LayerImage:
    """Layers, the lowest first, as an image."""

    config: bytes
    manifest: Manifest

    @property
    def descriptor(self) -> Descriptor:
        """Return its config, as the manifest names it."""
        return Descriptor.from_json(self.manifest.body["config"])


def layer_image(layers: Sequence[tuple[str, Blob]], platform: str, compression: Compression) -> LayerImage:
    """Return the image of `layers`, pairs of title and blob; equal layers, equal image."""
    system, _, architecture = platform.partition("/")
    config = canonical(
        {
            "architecture": architecture,
            "os": system,
            "created": CREATED,
            # With the same, layers of equal content are equal blobs. An image that is built on this one inherits it.
            "config": {"Labels": {LAYERS_LABEL: compressor(compression)}},
            "history": [{"created": CREATED, "created_by": title} for title, _ in layers],
            "rootfs": {"type": "layers", "diff_ids": [blob.diff_id for _, blob in layers]},
        }
    )
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": Descriptor(CONFIG, sha256_digest(config), len(config)).as_json(),
        "layers": [
            Descriptor(blob.media_type, blob.digest, blob.size, blob.annotations).as_json() for _, blob in layers
        ],
    }
    return LayerImage(config, Manifest(OCI_MANIFEST, canonical(body)))
