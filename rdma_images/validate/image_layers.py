"""The content of each layer of an image, also what a later layer hides: a pull brings all of it.

A layer's content never changes, so what was found in it is kept by its digest and no layer is read twice.
"""

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from docker import DockerClient
from pydantic import ValidationError

from rdma_images.core import atomic, stream
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import PROBES_FOLDER, state_folder
from rdma_images.core.stream import CHUNK, ChunkReader
from rdma_images.engine import Engine
from rdma_images.engine.layout import Layout
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import Leftovers, MeasuredLayer
from rdma_images.validate.probes import leftovers, rootfs, tree

BLOBS = "containerd/io.containerd.content.v1.content/blobs/sha256"
MAX_CATEGORIES = 10_000
MAX_TOPMOST_BYTES = 16 << 20  # bytes of a layer of scripts, which is read in less time than torch is imported
ZSTD, GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"

Open = Callable[[str], IO[bytes]]


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
        if not member.isfile():
            return
        self.unpacked += member.size
        path = _path(member)
        # CUDA's wheels share a folder, and are distinguished by their files.
        category = path if "-packages/nvidia/cu" in path else tree.counted_folder(path)
        if category in self.bytes_by_category or len(self.bytes_by_category) < MAX_CATEGORIES:
            self.bytes_by_category[category] = self.bytes_by_category.get(category, 0) + member.size
        tree.note_leftover(
            rootfs.RootEntry(path, member.mode, member.size, ""),
            self.leftovers,
            lambda _: _start(archive, member),
        )


def _start(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | None:
    content = archive.extractfile(member)
    return content.read(leftovers.MAX_TEXT_BYTES) if content else None


def measure_layers(client: DockerClient, engine: Engine, image_config: ImageConfig) -> tuple[MeasuredLayer, ...]:
    """Return the layers of an image, lowest first, with what has no business in them.

    The private engine's are read where they lie; of any other engine the image is saved first, which takes a while.
    Raises RdmaImagesError where the image has a form that is not known.
    """
    cached_layers = [_cached_layer(digest) for digest in image_config.layers]
    if all(cached_layers):
        return tuple(layer for layer in cached_layers if layer)
    with _blobs(client, engine, image_config) as (manifest, open_blob):
        if len(manifest) != len(image_config.layers):
            raise RdmaImagesError(
                f"{image_config.ref}: {len(manifest)} layers lie in the engine, not {len(image_config.layers)}\n"
                "pull or build it again"
            )
        todo = [
            (diff, blob)
            for diff, blob, cached in zip(image_config.layers, manifest, cached_layers, strict=True)
            if not cached
        ]
        with ThreadPoolExecutor(max_workers=2) as pool:
            read_layers = list(pool.map(lambda pair: measure_layer(pair[0], open_blob(pair[1])), todo))
    layers_by_digest = {layer.digest: layer for layer in read_layers}
    return tuple(
        cached or layers_by_digest[digest] for digest, cached in zip(image_config.layers, cached_layers, strict=True)
    )


@contextmanager
def _blobs(client: DockerClient, engine: Engine, image_config: ImageConfig) -> Iterator[tuple[list[str], Open]]:
    """Provide the names of the layers' blobs, lowest first, and a function that opens one."""
    if open_blob := _engine_blobs(engine, image_config):
        yield _layer_digests(image_config, open_blob), open_blob
        return
    with tempfile.TemporaryDirectory(prefix="rdma-images-layers-") as saved:
        yield _save(client, image_config, Path(saved)), lambda name: (Path(saved) / name).open("rb")


def _engine_blobs(engine: Engine, image_config: ImageConfig) -> Open | None:
    """Return what opens a blob in the private engine's store; None for another engine."""
    folder = Layout(state_folder().absolute() / "engine").data_folder / BLOBS
    if engine.kind != "private" or not (folder / image_config.digest.removeprefix("sha256:")).is_file():
        return None
    return lambda name: (folder / name.removeprefix("sha256:")).open("rb")


def topmost_members(
    engine: Engine, image_config: ImageConfig, start_bytes: int
) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Yield what the topmost layer of an image holds, with the first bytes of each file.

    Raises:
        RdmaImagesError: The layer is large, or its engine does not hand it out alone.
    """
    open_blob = _engine_blobs(engine, image_config)
    blobs = _layer_digests(image_config, open_blob) if open_blob else []
    if open_blob is None or not blobs:
        raise RdmaImagesError("this engine does not hand out a layer alone")
    with open_blob(blobs[-1]) as blob:
        if blob.seek(0, io.SEEK_END) > MAX_TOPMOST_BYTES:
            raise RdmaImagesError(f"its topmost layer has more than {MAX_TOPMOST_BYTES >> 20} MiB")
        blob.seek(0)
        with open_layer(blob) as archive:
            for member in stream.members(archive):
                content = archive.extractfile(member) if member.isfile() else None
                yield member, content.read(start_bytes) if content else b""


def _layer_digests(image_config: ImageConfig, open_blob: Open) -> list[str]:
    """Return the blobs of the layers, from the manifest or from the index that leads to it."""
    digest = image_config.digest
    for _ in range(3):
        with open_blob(digest) as file:
            document: dict[str, Any] = json.load(file)
        if "layers" in document:
            return [layer["digest"] for layer in document["layers"]]
        digest = _for_platform(document.get("manifests", []), image_config.platform)
    raise RdmaImagesError(f"{image_config.ref}: its manifest does not lead to layers\npull or build it again")


def _for_platform(manifests: list[dict[str, Any]], platform: str) -> str:
    for entry in manifests:
        description = entry.get("platform", {})
        if (
            "/".join(filter(None, (description.get("os"), description.get("architecture"), description.get("variant"))))
            == platform
        ):
            return str(entry["digest"])
    raise RdmaImagesError(f"the image's index has no manifest for {platform}\npull it for that platform")


def _save(client: DockerClient, image_config: ImageConfig, folder: Path) -> list[str]:
    """Save the image as files in `folder`, named by the numbers that are returned."""
    saved = io.BufferedReader(ChunkReader(client.images.get(image_config.digest).save(chunk_size=CHUNK)), CHUNK)
    names: dict[str, str] = {}
    manifest: list[dict[str, Any]] = []
    with tarfile.open(fileobj=saved, mode="r|", bufsize=CHUNK) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            if member.name == "manifest.json":
                manifest = json.load(content)
                continue
            names[member.name] = str(len(names))
            with (folder / names[member.name]).open("wb") as file:
                while chunk := content.read(CHUNK):
                    file.write(chunk)
    return [names[name] for name in manifest[0]["Layers"]] if manifest else []


def measure_layer(digest: str, blob: IO[bytes]) -> MeasuredLayer:
    """Return what is in a layer's blob; kept for the next time."""
    with blob:
        blob.seek(0, io.SEEK_END)
        size = blob.tell()
        blob.seek(0)
        content = LayerContent()
        with open_layer(blob) as archive:
            for member in stream.members(archive):
                content.read_member(archive, member)
    mostly = max(content.bytes_by_category.items(), key=lambda pair: pair[1], default=("", 0))[0]
    layer = MeasuredLayer(
        digest=digest,
        bytes=size,
        unpacked=content.unpacked,
        count=content.count,
        mostly=mostly,
        leftovers=Leftovers(**content.leftovers),
    )
    atomic.write(_cache_file(digest), layer.model_dump_json())
    return layer


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


def _path(member: tarfile.TarInfo) -> str:
    return "/" + member.name.removeprefix("./").lstrip("/")


def _cache_file(digest: str) -> Path:
    """Return where the content of a layer is kept: what was looked for is part of the name."""
    probes = [PROBES_FOLDER / name for name in ("leftovers.py", "tree.py")]
    readers = [*probes, Path(str(stream.__file__)), Path(__file__)]
    looked_for = hashlib.sha256(b"".join(path.read_bytes() for path in readers)).hexdigest()[:12]
    return state_folder() / "layers" / looked_for / f"{digest.removeprefix('sha256:')}.json"


def _cached_layer(digest: str) -> MeasuredLayer | None:
    try:
        return MeasuredLayer.model_validate_json(_cache_file(digest).read_bytes())
    except (OSError, ValidationError):
        return None
