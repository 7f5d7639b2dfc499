"""An image of layers alone, the first stage of a Dockerfile: config, manifest, name."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from rdma_images.engine.prune import LAYERS
from rdma_images.layers.blob import Blob
from rdma_images.layers.recipe import Recipe, compressor
from rdma_images.registry.client import OCI_MANIFEST, Descriptor, Manifest, canonical
from rdma_images.render.bake import Compression

CONFIG = "application/vnd.oci.image.config.v1+json"
CREATED = "1980-01-01T00:00:00Z"


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
            "config": {"Labels": {LAYERS: compressor(compression)}},
            "history": [{"created": CREATED, "created_by": title} for title, _ in layers],
            "rootfs": {"type": "layers", "diff_ids": [blob.diff_id for _, blob in layers]},
        }
    )
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": Descriptor(CONFIG, f"sha256:{hashlib.sha256(config).hexdigest()}", len(config)).as_json(),
        "layers": [
            Descriptor(blob.media_type, blob.digest, blob.size, blob.annotations).as_json() for _, blob in layers
        ],
    }
    return LayerImage(config, Manifest(OCI_MANIFEST, canonical(body)))


def layers_key(recipes: Sequence[Recipe]) -> str:
    """Return 16 hexadecimal digits that name the image of these layers."""
    return hashlib.sha256(json.dumps([recipe.key for recipe in recipes]).encode()).hexdigest()[:16]
