"""Bring layers into an engine, each as soon as it is made: it is unpacked there while those above are still made."""

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
from rdma_images.core.sizes import megabytes
from rdma_images.engine import Engine, docker_command
from rdma_images.engine.prune import LAYERS
from rdma_images.layers import store
from rdma_images.layers.blob import CHUNK, Blob
from rdma_images.layers.image import LayerImage, key_of, layer_image
from rdma_images.layers.pull import pull, refused, take_back
from rdma_images.layers.recipe import Recipe, coder
from rdma_images.layers.store import Layer
from rdma_images.layers.work import collision
from rdma_images.registry.client import OCI_INDEX
from rdma_images.render.bake import Compression

if TYPE_CHECKING:
    from _typeshed import SupportsRead

REPOSITORY = "rdma-images/wheels"  # of their images in an engine
SECONDS = 600  # without an answer: an engine says nothing while it unpacks


@dataclass(frozen=True)
class Wanted:
    """The layers of one image's wheels, lowest first; `part` is runtime or devel."""

    recipes: tuple[Recipe, ...]
    part: str
    platform: str

    @property
    def compression(self) -> Compression:
        """Of all of them."""
        return self.recipes[0].compression

    @property
    def tag(self) -> str:
        """What names the image of these layers in a repository."""
        return f"{self.part}-{key_of(self.recipes)}"

    @property
    def ref(self) -> str:
        """What their image is called in an engine."""
        return f"{REPOSITORY}:{self.tag}"


@dataclass(frozen=True)
class Brought:
    """An image of layers that is where a build takes it; `ref` in an engine or a registry."""

    ref: str
    blobs: tuple[Blob, ...]


class File(Protocol):
    """A layer of which this machine has the bytes, by the part runtime or devel."""

    def blob(self, part: str) -> Blob:
        """What it is."""

    def file(self, part: str) -> Path:
        """Where the bytes are."""

    def discard(self, part: str) -> RdmaImagesError:
        """Remove the bytes, which are not what `blob` says; the error that says so."""


class Coming(Protocol):
    """A layer on its way, a Future of any File."""

    def done(self) -> bool:
        """Whether `result` answers at once."""

    def result(self) -> File:
        """The layer, or the error why there is none."""


class Source(Protocol):
    """Where layers come from."""

    def ready(self, recipe: Recipe) -> Coming:
        """A layer, as soon as its bytes are here, or the RdmaImagesError why they are not."""


def load(wanted: Wanted, source: Source, engine: Engine, there: set[str], progress: Progress = silent) -> Brought:
    """Bring the layers into the engine as an image.

    Only those are brought that are not `there`, the diff ids of what the engine has, and are added to it. Raises
    RdmaImagesError for what cannot be had, for two wheels with different contents for one path, and for an engine that
    does not take them.
    """
    layers: list[tuple[Recipe, File]] = []
    steps: list[str] = []
    for batch in _batches(wanted.recipes, source):
        layers += batch
        blobs = [(recipe.title, layer.blob(wanted.part)) for recipe, layer in layers]
        unsent = [(layer, b) for _, layer in batch if (b := layer.blob(wanted.part)).diff_id not in there]
        last = len(layers) == len(wanted.recipes)
        if last:
            check([here for recipe in wanted.recipes if (here := store.find(recipe))])
        if unsent or last:
            name = wanted.ref if last else f"{wanted.ref}-{len(layers)}"
            image = layer_image(blobs, wanted.platform, wanted.compression)
            files = {blob.digest: layer.file(wanted.part) for layer, blob in unsent}
            try:
                give = pull if engine.kind == "private" else _send
                give(image, name, wanted.platform, files, engine)
            except RdmaImagesError:
                if damaged := next((layer for layer, b in unsent if not b.is_in(layer.file(wanted.part))), None):
                    take_back(damaged.file(wanted.part), damaged.blob(wanted.part).digest)
                    raise damaged.discard(wanted.part) from None
                raise
            there.update(blob.diff_id for _, blob in unsent)
            steps += [] if last else [name]
            if unsent:
                progress(f"the engine has {len(blobs)} of {len(wanted.recipes)} wheel layers, {_sizes(unsent)} new")
    forget(engine, *steps)
    return Brought(wanted.ref, tuple(layer.blob(wanted.part) for _, layer in layers))


def forget(engine: Engine, *refs: str) -> None:
    """Remove the names of images of layers; images that are built on them keep the layers."""
    if refs:
        docker_command.run(engine, "image", "rm", *refs)


def _batches(recipes: Sequence[Recipe], source: Source) -> Iterator[list[tuple[Recipe, File]]]:
    """The layers from the lowest on: those that are ready together at once."""
    waiting = list(recipes)
    while waiting:
        batch = [(waiting[0], source.ready(waiting.pop(0)).result())]
        while waiting and source.ready(waiting[0]).done():
            batch.append((waiting[0], source.ready(waiting.pop(0)).result()))
        yield batch


def diff_ids(engine: Engine, compression: Compression) -> set[str]:
    """The layers of images in the engine whose blobs are what would be sent, by diff id.

    Not those that an image of the other compression has, too: of such BuildKit may have made a blob of its own.
    """
    ids = docker_command.labelled(engine, LAYERS)
    if not ids:
        return set()
    told = docker_command.run(engine, "image", "inspect", *dict.fromkeys(ids))
    same: set[str] = set()
    other: set[str] = set()
    for image in json.loads(told.stdout):
        of = same if image["Config"]["Labels"][LAYERS] == coder(compression) else other
        of.update(image["RootFS"]["Layers"])
    return same - other


def check(layers: Sequence[Layer]) -> None:
    """Raise WheelError for a path that two layers bring with different contents: the upper one would hide the other."""
    found: dict[str, tuple[str, str]] = {}
    for layer in layers:
        for path, (digest, wheel) in layer.paths().items():
            other, first = found.setdefault(path, (digest, wheel))
            if other != digest:
                raise collision(path, first, wheel)


def _send(image: LayerImage, ref: str, _platform: str, blobs: Mapping[str, Path], engine: Engine) -> None:
    """`docker load` of an image, of which the engine has all layers but `blobs`: digest -> file."""
    client = docker.DockerClient(base_url=engine.host, timeout=SECONDS)
    try:
        # An iterator is sent in its own pieces; a file would be read in pieces of 16 kB.
        client.images.load(cast("SupportsRead[bytes]", _archive(image, ref, blobs)))
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise refused(engine, str(error)) from None
    finally:
        client.close()


def _archive(image: LayerImage, ref: str, blobs: Mapping[str, Path]) -> Iterator[bytes]:
    """An OCI image layout in a tar, a piece at a time."""
    yield from _member("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    for digest, path in blobs.items():
        size = path.stat().st_size
        yield _header(_path(digest), size)
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                yield data
        yield bytes(-size % tarfile.BLOCKSIZE)
    yield from _member(_path(image.descriptor.digest), image.config)
    yield from _member(_path(image.manifest.digest), image.manifest.raw)
    named = image.manifest.descriptor.as_json() | {
        "annotations": {
            "io.containerd.image.name": f"docker.io/{ref}",
            "org.opencontainers.image.ref.name": ref.rpartition(":")[2],
        }
    }
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [named]}
    yield from _member("index.json", json.dumps(index).encode())
    yield bytes(2 * tarfile.BLOCKSIZE)


def _member(name: str, content: bytes) -> Iterator[bytes]:
    yield _header(name, len(content))
    yield content + bytes(-len(content) % tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _sizes(blobs: Sequence[tuple[File, Blob]]) -> str:
    return megabytes(sum(blob.size for _, blob in blobs))
