"""The content of each layer of an image, also what a later layer hides: a pull brings all of it.

A layer's content never changes, so what was found in it is kept by its digest and no layer is read twice.
"""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from docker import DockerClient
from pydantic import ValidationError

from rdma_images.core import atomic, leftovers, stream
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.core.stream import CHUNK, ChunkReader
from rdma_images.engine import Engine
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import Leftovers, MeasuredLayer
from rdma_images.layers.private_engine_pull import blob_file

MAX_CATEGORIES = 10_000
MAX_LEFTOVERS = 200  # of a kind in one layer
ZSTD, GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"


@dataclass
class LayerContent:
    """The measurements of a layer, gathered while its files stream by."""

    leftovers: dict[str, dict[str, str]] = field(default_factory=lambda: {"secret": {}, "cache": {}})
    bytes_by_category: dict[str, int] = field(default_factory=dict)  # of the first MAX_CATEGORIES
    count: int = 0
    unpacked: int = 0  # bytes

    def read_member(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Take note of the next file, folder or link."""
        self.count += 1
        path = "/" + member.name.removeprefix("./").lstrip("/")
        if not member.isfile():
            return
        self.unpacked += member.size
        # CUDA's wheels share a folder, and are distinguished by their files.
        category = path if "-packages/nvidia/cu" in path else counted_folder(path)
        if category in self.bytes_by_category or len(self.bytes_by_category) < MAX_CATEGORIES:
            self.bytes_by_category[category] = self.bytes_by_category.get(category, 0) + member.size
        kind, why = leftovers.leftover_kind(path), leftovers.BY_NAME
        content = archive.extractfile(member)
        may_hold_secret = kind in (None, "secret") and leftovers.file_may_hold_secret(path, member.size)
        if content and may_hold_secret and (secret := leftovers.find_secret(content.read(leftovers.MAX_TEXT_BYTES))):
            kind, why = "secret", secret
        if kind and len(self.leftovers[kind]) < MAX_LEFTOVERS:
            self.leftovers[kind][path] = why


def counted_folder(path: str) -> str:
    """Return the place whose size `path` counts for.

    That is a package of site-packages, else two folders from the root.
    """
    before, inside, after = path.partition("/site-packages/")
    if inside:
        steps = after.split("/")
        depth = 2 if steps[0] == "nvidia" else 1
        return before + inside + "/".join(steps[: min(depth, max(len(steps) - 1, 1))])
    steps = path.split("/")
    return "/".join(steps[: min(4, len(steps) - 1)]) or "/"


def measure_layers(client: DockerClient, engine: Engine, image_config: ImageConfig) -> tuple[MeasuredLayer, ...]:
    """Return the layers of an image, lowest first, with the leftovers in each (secrets, caches).

    The private engine's are read where they lie; of any other engine the image is saved first, which takes a while.
    Raises RdmaImagesError where the image has a form that is not known.
    """
    layers = {digest: _cached_layer(digest) for digest in image_config.layers}
    if not all(layers.values()):
        with _blob_files(client, engine, image_config) as files:
            if len(files) != len(image_config.layers):
                raise RdmaImagesError(
                    f"{image_config.ref}: {len(files)} layers lie in the engine, not {len(image_config.layers)}\n"
                    "pull or build it again"
                )
            todo = {d: file for d, file in zip(image_config.layers, files, strict=True) if not layers[d]}
            with ThreadPoolExecutor(max_workers=2) as pool:
                for read in pool.map(read_layer, todo, todo.values()):
                    layers[read.digest] = read
                    atomic.write(_cache_file(read.digest), read.model_dump_json())
    return tuple(layer for digest in image_config.layers if (layer := layers[digest]))


@contextmanager
def _blob_files(client: DockerClient, engine: Engine, image_config: ImageConfig) -> Iterator[list[Path]]:
    """Provide the files of the layers, lowest first, from the private engine's store or else a saved image."""
    if engine.kind == "private" and blob_file(image_config.digest).is_file():
        yield _stored_layers(image_config)
        return
    with tempfile.TemporaryDirectory(prefix="rdma-images-layers-") as saved:
        yield _save(client, image_config, Path(saved))


def _stored_layers(image_config: ImageConfig) -> list[Path]:
    """Return the files of an image's layers in the private engine's store, by its manifest or the index above it."""
    document: dict[str, Any] = json.loads(blob_file(image_config.digest).read_bytes())
    for entry in document.get("manifests", []):
        platform = entry.get("platform", {})
        names = (platform.get("os"), platform.get("architecture"), platform.get("variant"))
        if "/".join(filter(None, names)) == image_config.platform:
            document = json.loads(blob_file(entry["digest"]).read_bytes())
    return [blob_file(layer["digest"]) for layer in document.get("layers", [])]


def _save(client: DockerClient, image_config: ImageConfig, folder: Path) -> list[Path]:
    """Save the image as files in `folder`, and return its layers' files."""
    saved = io.BufferedReader(ChunkReader(client.images.get(image_config.digest).save(chunk_size=CHUNK)), CHUNK)
    files: dict[str, Path] = {}
    manifest: list[dict[str, Any]] = []
    with tarfile.open(fileobj=saved, mode="r|", bufsize=CHUNK) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            if member.name == "manifest.json":
                manifest = json.load(content)
                continue
            files[member.name] = folder / str(len(files))
            with files[member.name].open("wb") as file:
                shutil.copyfileobj(content, file, CHUNK)
    return [files[name] for name in manifest[0]["Layers"]] if manifest else []


def read_layer(digest: str, file: Path) -> MeasuredLayer:
    """Return what is in a layer, whose blob is `file`."""
    with file.open("rb") as blob:
        blob.seek(0, io.SEEK_END)
        size = blob.tell()
        blob.seek(0)
        content = LayerContent()
        with open_layer(blob) as archive:
            for member in stream.members(archive):
                content.read_member(archive, member)
    mostly = max(content.bytes_by_category.items(), key=lambda pair: pair[1], default=("", 0))[0]
    return MeasuredLayer(
        digest=digest,
        bytes=size,
        unpacked=content.unpacked,
        file_count=content.count,
        largest_folder=mostly,
        leftovers=Leftovers(**content.leftovers),
    )


def open_layer(blob: IO[bytes]) -> tarfile.TarFile:
    """Return a layer's blob, compressed or not, as a tar to read from start to end.

    A name may be no UTF-8.
    """
    start = blob.read(len(ZSTD))
    blob.seek(0)
    # The mode "r:" leaps over what is not read, which gzip cannot.
    plain: Any = io.BufferedReader(stream.ZstdFrames(blob), CHUNK) if start == ZSTD else blob
    mode: Any = "r:"
    if start.startswith(GZIP):
        plain, mode = gzip.GzipFile(fileobj=blob), "r|"
    return tarfile.open(fileobj=plain, mode=mode, bufsize=CHUNK, encoding="utf-8", errors="replace")


def _cache_file(digest: str) -> Path:
    """Return where the content of a layer is kept: what was looked for is part of the name."""
    readers = [Path(str(leftovers.__file__)), Path(str(stream.__file__)), Path(__file__)]
    looked_for = hashlib.sha256(b"".join(path.read_bytes() for path in readers)).hexdigest()[:12]
    return state_folder() / "layers" / looked_for / f"{digest.removeprefix('sha256:')}.json"


def _cached_layer(digest: str) -> MeasuredLayer | None:
    try:
        return MeasuredLayer.model_validate_json(_cache_file(digest).read_bytes())
    except (OSError, ValidationError):
        return None
