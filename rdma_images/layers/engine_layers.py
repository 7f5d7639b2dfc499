"""The wheel layers that an engine has already, which need not be sent to it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rdma_images.engine import Engine, docker_command
from rdma_images.engine.layout import layout
from rdma_images.engine.prune import LAYERS
from rdma_images.layers.blob import Blob
from rdma_images.layers.recipe import compressor
from rdma_images.render.bake import Compression


@dataclass
class EngineLayers:
    """The layers of an engine's images.

    A diff id alone says that the engine has the content, and perhaps as another blob: an image that names our blob can
    then not be loaded without its bytes.
    """

    diff_ids: set[str] = field(default_factory=set)
    private: bool = False  # the engine's blobs are files that this process sees
    loaded: set[str] = field(default_factory=set)  # digests of what was loaded meanwhile

    def has(self, blob: Blob) -> bool:
        """Return whether the engine has this very blob."""
        if blob.digest in self.loaded:
            return True
        if blob.diff_id not in self.diff_ids:
            return False
        return not self.private or blob_file(blob.digest).exists()

    def add(self, blobs: Iterable[Blob]) -> None:
        """Count `blobs`, which were loaded, among the engine's."""
        self.loaded.update(blob.digest for blob in blobs)


def engine_layers(engine: Engine, compression: Compression) -> EngineLayers:
    """Return the layers of the engine's images that were built on layers of this compression.

    Layers that an image of the other compression has, too, are left out: BuildKit may have made blobs of its own.
    """
    ids = docker_command.images_with_labels(engine, LAYERS)
    same_compression: set[str] = set()
    other_compression: set[str] = set()
    if ids:
        inspected = docker_command.run(engine, "image", "inspect", *dict.fromkeys(ids))
        for image in json.loads(inspected.stdout):
            group = (
                same_compression if image["Config"]["Labels"][LAYERS] == compressor(compression) else other_compression
            )
            group.update(image["RootFS"]["Layers"])
    return EngineLayers(same_compression - other_compression, engine.kind == "private")


def blob_file(digest: str) -> Path:
    """Return the file in which the private engine's containerd has a blob."""
    return layout().data_folder / "containerd" / "io.containerd.content.v1.content" / "blobs" / digest.replace(":", "/")
