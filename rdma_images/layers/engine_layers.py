"""Bring layers to an engine: find those that it has, and load the others, each as soon as it is made."""

import json
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import docker
import requests

from rdma_images.core.compression import Compression
from rdma_images.core.image import LAYERS_LABEL
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.engine import Engine, docker_command
from rdma_images.engine import client as engine_client
from rdma_images.layers import layer_store
from rdma_images.layers.blob import CHUNK, Blob
from rdma_images.layers.layer_image import LayerImage, LayerSet, LoadedImage, layer_image
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.layer_store import StoredLayer
from rdma_images.layers.private_engine_pull import EngineRefusedError, blob_file, pull_image, refusal_error, unlink_blob
from rdma_images.layers.recipe import Recipe, compressor
from rdma_images.registry.client import OCI_INDEX

Layers = Sequence[StoredLayer]
Transfer = Callable[[Layers], None]
ENGINE_ANSWER_SECONDS = 600  # without an answer: an engine says nothing while it unpacks


@dataclass
class EngineLayers:
    """The layers of an engine's images.

    A diff id alone says that the engine has the content, and perhaps as another blob: an image that names our blob can
    then not be loaded without its bytes.
    """

    diff_ids: set[str] = field(default_factory=set)
    private: bool = False  # the engine's blobs are files that this process sees
    loaded: set[str] = field(default_factory=set)  # digests of what was loaded meanwhile

    def has_blob(self, blob: Blob) -> bool:
        """Return whether the engine has this very blob."""
        if blob.digest in self.loaded:
            return True
        if blob.diff_id not in self.diff_ids:
            return False
        return not self.private or blob_file(blob.digest).exists()

    def add(self, blobs: Iterable[Blob]) -> None:
        """Count `blobs`, which were loaded, among the engine's."""
        self.loaded.update(blob.digest for blob in blobs)


def read_engine_layers(engine: Engine, compression: Compression) -> EngineLayers:
    """Return the layers of the engine's images that were built on layers of this compression.

    Layers that an image of the other compression has, too, are left out: BuildKit may have made blobs of its own.
    """
    ids = docker_command.images_with_labels(engine, LAYERS_LABEL)
    same_compression: set[str] = set()
    other_compression: set[str] = set()
    if ids:
        inspected = docker_command.run(engine, "image", "inspect", *dict.fromkeys(ids))
        for image in json.loads(inspected.stdout):
            group = (
                same_compression
                if image["Config"]["Labels"][LAYERS_LABEL] == compressor(compression)
                else other_compression
            )
            group.update(image["RootFS"]["Layers"])
    return EngineLayers(same_compression - other_compression, engine.kind == "private")


def load_image(
    layer_set: LayerSet, layer_pool: LayerPool, engine: Engine, engine_layers: EngineLayers, progress: Progress = silent
) -> LoadedImage:
    """Load the layers into the engine, only those that it lacks, and return them as an image.

    Args:
        engine_layers: What the engine has; gets what it has afterwards.

    Raises:
        RdmaImagesError: A layer cannot be had, two wheels have different contents for one path, or the engine does not
            take the layers.
    """
    layers: list[tuple[Recipe, StoredLayer]] = []
    partial_names: list[str] = []
    for batch in _batches(layer_set.recipes, layer_pool):
        layers += batch
        unsent = [layer for _, layer in batch if not engine_layers.has_blob(layer.blob(layer_set.variant))]
        is_last = len(layers) == len(layer_set.recipes)
        if is_last:
            layer_store.check_collisions(layer_set.recipes)
        if unsent or is_last:
            name = layer_set.ref if is_last else f"{layer_set.ref}-{len(layers)}"
            blobs = [(recipe.title, layer.blob(layer_set.variant)) for recipe, layer in layers]
            image = layer_image(blobs, layer_set.platform, layer_set.compression)
            transfer = partial(_transfer, image, name, layer_set, engine)
            _transfer_or_offer_all(transfer, unsent, [layer for _, layer in layers], progress)
            engine_layers.add(layer.blob(layer_set.variant) for layer in unsent)
            partial_names += [] if is_last else [name]
            if unsent:
                sent_size = format_megabytes(sum(layer.blob(layer_set.variant).size for layer in unsent))
                progress(f"the engine has {len(layers)} of {len(layer_set.recipes)} wheel layers, {sent_size} new")
    docker_command.remove_images(engine, *partial_names)  # the image that is built on them keeps the layers
    return LoadedImage(layer_set.ref, tuple(layer.blob(layer_set.variant) for _, layer in layers))


def _transfer_or_offer_all(transfer: Transfer, unsent: Layers, layers: Layers, progress: Progress) -> None:
    """Load an image with the layers `unsent`; where the engine then refuses it, with all. Raises as `_transfer`."""
    try:
        transfer(unsent)
    except EngineRefusedError:
        # An engine may lack blobs that its images name: they are then sent once more.
        if len(unsent) == len(layers):
            raise
        progress("the engine lacks blobs of its own images: all wheel layers are offered to it again")
        transfer(layers)


def _transfer(image: LayerImage, name: str, layer_set: LayerSet, engine: Engine, unsent: Layers) -> None:
    """Load an image into the engine, sending only the layers `unsent`.

    Raises:
        EngineRefusedError: The engine does not take the image.
        RdmaImagesError: The bytes of a layer are damaged; they are removed.
    """
    files = {layer.blob(layer_set.variant).digest: layer.file(layer_set.variant) for layer in unsent}
    try:
        (pull_image if engine.kind == "private" else _send)(image, name, layer_set.platform, files, engine)
    except EngineRefusedError:
        for layer in unsent:
            blob = layer.blob(layer_set.variant)
            if not blob.is_in(layer.file(layer_set.variant)):
                unlink_blob(layer.file(layer_set.variant), blob.digest)
                raise layer.discard(layer_set.variant) from None
        raise


def _batches(recipes: Sequence[Recipe], layer_pool: LayerPool) -> Iterator[list[tuple[Recipe, StoredLayer]]]:
    """Yield the layers from the lowest on: those that are ready together at once."""
    waiting = deque((recipe, layer_pool.layer_future(recipe)) for recipe in recipes)
    while waiting:
        batch: list[tuple[Recipe, StoredLayer]] = []
        while waiting and (not batch or waiting[0][1].done()):
            recipe, future = waiting.popleft()
            batch.append((recipe, future.result()))
        yield batch


def _send(image: LayerImage, ref: str, _platform: str, blobs: Mapping[str, Path], engine: Engine) -> None:
    """Load an image with `docker load`; `blobs` has the files the engine lacks, by digest."""
    try:
        with closing(engine_client(engine, ENGINE_ANSWER_SECONDS)) as client:
            # An iterator is sent in its own pieces; a file would be read in pieces of 16 kB.
            archive: Any = _archive(image, ref, blobs)
            client.images.load(archive)
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise refusal_error(engine, str(error)) from None


def _archive(image: LayerImage, ref: str, blobs: Mapping[str, Path]) -> Iterator[bytes]:
    """Yield an OCI image layout in a tar, a piece at a time."""
    yield from _member("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    for digest, path in blobs.items():
        size = path.stat().st_size
        yield _header(_path(digest), size)
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
        yield bytes(-size % tarfile.BLOCKSIZE)
    yield from _member(_path(image.descriptor.digest), image.config)
    yield from _member(_path(image.manifest.digest), image.manifest.raw)
    descriptor = image.manifest.descriptor.as_json() | {
        "annotations": {
            "io.containerd.image.name": f"docker.io/{ref}",
            "org.opencontainers.image.ref.name": ref.rpartition(":")[2],
        }
    }
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [descriptor]}
    yield from _member("index.json", json.dumps(index).encode())
    yield bytes(2 * tarfile.BLOCKSIZE)


def _member(name: str, content: bytes) -> Iterator[bytes]:
    yield _header(name, len(content))
    yield content + bytes(-len(content) % tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    header = tarfile.TarInfo(name)
    header.size = size
    return header.tobuf(tarfile.USTAR_FORMAT)


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
