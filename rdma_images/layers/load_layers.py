"""Load layers into an engine, each as soon as it is ready, which unpacks them meanwhile."""

import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import docker
import requests

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.engine import Engine, docker_command
from rdma_images.layers import layer_store
from rdma_images.layers.blob import CHUNK, Blob
from rdma_images.layers.engine_layers import EngineLayers
from rdma_images.layers.layer_image import LayerImage, layer_image, layers_key
from rdma_images.layers.make_wheel_layer import collision, differ
from rdma_images.layers.private_engine_pull import EngineRefusedError, pull, refused, unlink_blob
from rdma_images.layers.recipe import Recipe
from rdma_images.registry.client import OCI_INDEX
from rdma_images.render.bake import Compression

if TYPE_CHECKING:
    from _typeshed import SupportsRead

REPOSITORY = "rdma-images/wheels"  # of their images in an engine
ENGINE_ANSWER_SECONDS = 600  # without an answer: an engine says nothing while it unpacks


@dataclass(frozen=True)
class LayerSet:
    """The layers of one image's wheels, lowest first; `part` is runtime or devel."""

    recipes: tuple[Recipe, ...]
    part: str
    platform: str

    @property
    def compression(self) -> Compression:
        """Return the compression of all the layers."""
        return self.recipes[0].compression

    @property
    def tag(self) -> str:
        """Return the tag of the image of these layers in a repository."""
        return f"{self.part}-{layers_key(self.recipes)}"

    @property
    def ref(self) -> str:
        """Return the name of their image in an engine."""
        return f"{REPOSITORY}:{self.tag}"


@dataclass(frozen=True)
class LoadedImage:
    """An image of layers where a build takes it; `ref` in an engine or a registry."""

    ref: str
    blobs: tuple[Blob, ...]


class LayerFile(Protocol):
    """A layer whose bytes are on this machine, by the part runtime or devel."""

    def blob(self, part: str) -> Blob:
        """Return the layer's blob."""

    def file(self, part: str) -> Path:
        """Return the path of the bytes."""

    def discard(self, part: str) -> RdmaImagesError:
        """Remove the bytes, which are not what `blob` says; return the error that says so."""


class PendingLayer(Protocol):
    """A layer that is being made or downloaded, a Future of any LayerFile."""

    def done(self) -> bool:
        """Return whether `result` answers at once."""

    def result(self) -> LayerFile:
        """Return the layer, or raise the error why there is none."""


class LayerSource(Protocol):
    """Provides layers."""

    def layer_future(self, recipe: Recipe) -> PendingLayer:
        """Return the future of a layer, or of the RdmaImagesError why it is missing."""


def load_image(
    layer_set: LayerSet,
    source: LayerSource,
    engine: Engine,
    engine_layers: EngineLayers,
    progress: Progress = silent,
) -> LoadedImage:
    """Load the layers into the engine, only those that it lacks, and return them as an image.

    Args:
        engine_layers: What the engine has; gets what it has afterwards.

    Raises:
        RdmaImagesError: A layer cannot be had, two wheels have different contents for one path, or the engine does not
            take the layers.
    """
    layers: list[tuple[Recipe, LayerFile]] = []
    partial_names: list[str] = []
    for batch in _batches(layer_set.recipes, source):
        layers += batch
        files = [layer for _, layer in batch]
        unsent = [layer for layer in files if not engine_layers.has(layer.blob(layer_set.part))]
        is_last = len(layers) == len(layer_set.recipes)
        if is_last:
            check_collisions(layer_set.recipes)
        if unsent or is_last:
            name = layer_set.ref if is_last else f"{layer_set.ref}-{len(layers)}"
            blobs = [(recipe.title, layer.blob(layer_set.part)) for recipe, layer in layers]
            image = layer_image(blobs, layer_set.platform, layer_set.compression)
            try:
                _transfer(image, name, layer_set, unsent, engine)
            except EngineRefusedError:
                # An engine may lack blobs that its images name; the bytes that are here are then sent once more.
                local_layers = [layer for _, layer in layers if layer.file(layer_set.part).exists()]
                if len(local_layers) == len(unsent):
                    raise
                progress("the engine lacks blobs of its own images: all wheel layers are offered to it again")
                _transfer(image, name, layer_set, local_layers, engine)
            engine_layers.add(layer.blob(layer_set.part) for layer in unsent)
            partial_names += [] if is_last else [name]
            if unsent:
                sent_size = format_megabytes(sum(layer.blob(layer_set.part).size for layer in unsent))
                progress(f"the engine has {len(layers)} of {len(layer_set.recipes)} wheel layers, {sent_size} new")
    docker_command.remove_images(engine, *partial_names)  # the image that is built on them keeps the layers
    return LoadedImage(layer_set.ref, tuple(layer.blob(layer_set.part) for _, layer in layers))


def _transfer(image: LayerImage, name: str, layer_set: LayerSet, unsent: Sequence[LayerFile], engine: Engine) -> None:
    """Load an image into the engine, sending only the layers `unsent`.

    Raises:
        EngineRefusedError: The engine does not take the image.
        RdmaImagesError: The bytes of a layer are damaged; they are removed.
    """
    files = {layer.blob(layer_set.part).digest: layer.file(layer_set.part) for layer in unsent}
    try:
        (pull if engine.kind == "private" else _send)(image, name, layer_set.platform, files, engine)
    except EngineRefusedError:
        for layer in unsent:
            blob = layer.blob(layer_set.part)
            if not blob.is_in(layer.file(layer_set.part)):
                unlink_blob(layer.file(layer_set.part), blob.digest)
                raise layer.discard(layer_set.part) from None
        raise


def _batches(recipes: Sequence[Recipe], source: LayerSource) -> Iterator[list[tuple[Recipe, LayerFile]]]:
    """Yield the layers from the lowest on: those that are ready together at once."""
    waiting = list(recipes)
    while waiting:
        batch = [(waiting[0], source.layer_future(waiting.pop(0)).result())]
        while waiting and source.layer_future(waiting[0]).done():
            batch.append((waiting[0], source.layer_future(waiting.pop(0)).result()))
        yield batch


def check_collisions(recipes: Sequence[Recipe]) -> None:
    """Raise WheelError for a path of which two layers have different contents that an image may use.

    Only layers that were made on this machine are compared. The upper layer would hide the lower one's file.
    """
    by_path: dict[str, tuple[str, str]] = {}
    for layer in filter(None, map(layer_store.find, recipes)):
        for path, (digest, wheel) in layer.paths().items():
            first_digest, first_wheel = by_path.setdefault(path, (digest, wheel))
            if differ(path, first_digest, digest):
                raise collision(path, first_wheel, wheel)


def _send(image: LayerImage, ref: str, _platform: str, blobs: Mapping[str, Path], engine: Engine) -> None:
    """Load an image with `docker load`; `blobs` has the files the engine lacks, by digest."""
    client = docker.DockerClient(base_url=engine.host, timeout=ENGINE_ANSWER_SECONDS)
    try:
        # An iterator is sent in its own pieces; a file would be read in pieces of 16 kB.
        client.images.load(cast("SupportsRead[bytes]", _archive(image, ref, blobs)))
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise refused(engine, str(error)) from None
    finally:
        client.close()


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
