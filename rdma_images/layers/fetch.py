"""Layers of a registry as files on this machine, which the private engine takes without copying or hashing them."""

import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rdma_images.core import disk_space, files, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import megabytes
from rdma_images.layers import store
from rdma_images.layers.blob import Blob
from rdma_images.layers.load import Brought, File, Wanted
from rdma_images.layers.recipe import Recipe
from rdma_images.layers.remote_layers import ATTEMPTS, FIRST_WAIT
from rdma_images.registry import faults
from rdma_images.registry.client import Repository

AT_ONCE = 2  # downloads


@dataclass(frozen=True)
class Fetched:
    """A layer of a registry, of which `path` has the bytes, or will have."""

    what: Blob
    path: Path

    def blob(self, _part: str) -> Blob:
        """What it is."""
        return self.what

    def file(self, _part: str) -> Path:
        """Where its bytes are."""
        return self.path

    def discard(self, _part: str) -> RdmaImagesError:
        """Remove the bytes, which are not what they were; the error that says so."""
        self.path.unlink(missing_ok=True)
        return RdmaImagesError(
            f"{self.path}: this layer was damaged since it was downloaded, and is removed\n"
            "build again: it is downloaded anew; see with `dmesg` whether the disk fails"
        )


@dataclass(frozen=True)
class Source:
    """Layers by the key of their recipe."""

    layers: Mapping[str, Future[File]]

    def ready(self, recipe: Recipe) -> Future[File]:
        """A layer, as soon as its bytes are here, or the RdmaImagesError why they are not."""
        return self.layers[recipe.key]


@contextmanager
def fetching(
    wanted: Wanted,
    brought: Brought,
    repository: Repository,
    there: Collection[str],
    stop: threading.Event,
    progress: Progress = silent,
) -> Iterator[Source]:
    """The layers of an image in a registry, on their way, the lowest first; their files are gone after the block.

    Not downloaded are those that the engine has, whose diff ids are `there`, and those that this machine made. Setting
    `stop` ends the downloads, and an error in the block sets it. Raises RdmaImagesError for a full disk. For one build
    at a time.
    """
    folder = paths.state_folder() / "fetched"
    shutil.rmtree(folder, ignore_errors=True)  # what a killed build left
    layers: dict[str, Future[File]] = {}
    new: dict[str, Fetched] = {}  # by digest: layers can be equal, as those of wheels that have nothing for devel
    for recipe, blob in zip(wanted.recipes, brought.blobs, strict=True):
        made, fetched = store.find(recipe), Fetched(blob, folder / blob.digest.rpartition(":")[2])
        if made and made.blob(wanted.part) == blob:
            layers[recipe.key] = _here(made)
        elif blob.diff_id in there:
            layers[recipe.key] = _here(fetched)
        else:
            new[blob.digest] = fetched
    size = sum(one.what.size for one in new.values())
    disk_space.require(size, f"downloading wheels' layers from {repository.ref}")
    with files.as_file_error(folder):
        folder.mkdir(parents=True)
    progress(f"downloading {megabytes(size)} of wheel layers from {repository.ref}")
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            coming = {digest: pool.submit(_fetch, one, repository, stop, progress) for digest, one in new.items()}
            for recipe, blob in zip(wanted.recipes, brought.blobs, strict=True):
                if recipe.key not in layers:
                    layers[recipe.key] = coming[blob.digest]
            try:
                yield Source(layers)
            except BaseException:
                stop.set()
                raise
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _here(layer: File) -> Future[File]:
    future: Future[File] = Future()
    future.set_result(layer)
    return future


def _fetch(layer: Fetched, repository: Repository, stop: threading.Event, progress: Progress) -> File:
    save = partial(repository.save, layer.what.digest, layer.path, stop)
    faults.retry(save, ATTEMPTS, FIRST_WAIT, say=progress, sleep=stop.wait)
    return layer
