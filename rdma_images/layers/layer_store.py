"""Finished layers by recipe, in <state>/layers/<key>/; the least used go first."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rdma_images.core import disk_space, files, locking, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.layers.blob import Blob
from rdma_images.layers.make_wheel_layer import LISTING_FILE, RECORD_FILE, collision_error, contents_conflict
from rdma_images.layers.recipe import Recipe

# The layers that are kept, compressed: those of four torch releases, which share most of NVIDIA's.
MAX_BYTES = 12 * disk_space.GB
MAX_SHARE = 0.1  # of the disk
IN_USE_SECONDS = 3600.0  # seconds: what was used since then may be in the middle of being read


@dataclass(frozen=True)
class StoredLayer:
    """A stored layer: the part of runtime images, and what devel images add."""

    key: str
    runtime: Blob
    devel: Blob

    def blob(self, part: str) -> Blob:
        """Return the blob of the part runtime or devel."""
        return self.runtime if part == "runtime" else self.devel

    def file(self, part: str) -> Path:
        """Return where the bytes of the part runtime or devel are."""
        return folder(self.key) / part

    def discard(self, part: str) -> RdmaImagesError:
        """Remove a layer with a damaged part, and return the error to raise."""
        shutil.rmtree(folder(self.key), ignore_errors=True)
        return RdmaImagesError(
            f"{self.file(part)}: this layer was damaged after it was written, and is removed\n"
            "build again: it is made anew; see with `dmesg` whether the disk fails"
        )

    def paths(self) -> dict[str, tuple[str, str]]:
        """Return the digest and the wheel of each file, by path."""
        listed = json.loads((folder(self.key) / LISTING_FILE).read_text(encoding="utf-8"))
        return {path: (digest, wheel) for path, (digest, wheel) in listed.items()}


def root() -> Path:
    """Return the folder of all layers."""
    return paths.state_folder() / "layers"


def folder(key: str) -> Path:
    """Return the folder of a layer."""
    return root() / key


def find(recipe: Recipe) -> StoredLayer | None:
    """Return the layer of a recipe, None where it was not made here; its use is noted."""
    record_path = folder(recipe.key) / RECORD_FILE
    try:
        record = json.loads(record_path.read_text(encoding="utf-8"))
        record_path.touch()
        return StoredLayer(recipe.key, Blob(**record["runtime"]), Blob(**record["devel"]))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def get_or_build(recipe: Recipe, build: Callable[[Path], None], progress: Progress = silent) -> StoredLayer:
    """Return the layer of a recipe, made by `build` where it is missing.

    One process makes it, and others wait for it. The rest of a killed one is removed first.
    """
    temporary = root() / f".{recipe.key}"
    with locking.hold(f"layer-{recipe.key[:16]}", f"making {recipe.name}", progress):
        if layer := find(recipe):
            return layer
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            with files.raising_file_error(temporary):
                temporary.mkdir(parents=True)
            build(temporary)
            shutil.rmtree(folder(recipe.key), ignore_errors=True)
            temporary.rename(folder(recipe.key))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        layer = find(recipe)
        if layer is None:
            raise RdmaImagesError(f"{folder(recipe.key)}: the layer that was made there cannot be read\nremove it")
        return layer


def check_collisions(recipes: Sequence[Recipe]) -> None:
    """Raise WheelError if two layers have a path with different contents, and an image may use it.

    Only layers that were made on this machine are compared. The upper layer would hide the lower one's file.
    """
    by_path: dict[str, tuple[str, str]] = {}
    for layer in filter(None, map(find, recipes)):
        for path, (digest, wheel) in layer.paths().items():
            first_digest, first_wheel = by_path.setdefault(path, (digest, wheel))
            if contents_conflict(path, first_digest, digest):
                raise collision_error(path, first_wheel, wheel)


def size_limit() -> int:
    """Return the bytes that all kept layers may take."""
    return min(MAX_BYTES, int(disk_space.total(root()) * MAX_SHARE))


def trim(limit: int | None = None, now: float | None = None) -> tuple[str, ...]:
    """Remove the least recently used layers beyond `limit` bytes; return their keys.

    Layers used within the last hour stay. So do layers of which at least half of the bytes are hard-linked into the
    private engine, because removing them frees little.
    """
    limit = size_limit() if limit is None else limit
    now = time.time() if now is None else now
    with locking.hold("layers-trim", "removing layers that are not used"):
        rows = sorted(_stored_layers(), key=lambda row: row[1])
        total = sum(size for _, _, size, _ in rows)
        removed_keys = []
        for path, used_at, size, total_size in rows:
            if total <= limit or now - used_at < IN_USE_SECONDS:
                break
            if 2 * size <= total_size:
                continue
            shutil.rmtree(path, ignore_errors=True)
            removed_keys.append(path.name)
            total -= size
    return tuple(removed_keys)


def _stored_layers() -> Iterator[tuple[Path, float, int, int]]:
    """Yield each layer's folder, last use, bytes that removal frees, bytes of blobs."""
    for record_path in root().glob(f"[0-9a-f]*/{RECORD_FILE}"):
        blobs = [file.stat() for file in record_path.parent.iterdir() if file.name in ("runtime", "devel")]
        size = sum(blob.st_size for blob in blobs if blob.st_nlink == 1)
        yield record_path.parent, record_path.stat().st_mtime, size, sum(blob.st_size for blob in blobs)
