"""Download layers as files that the private engine takes without copying."""

import shutil
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rdma_images.core import disk_space, files, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.layers import layer_store
from rdma_images.layers.blob import Blob
from rdma_images.layers.engine_layers import EngineLayers
from rdma_images.layers.load_layers import LayerFile, LayerSet, LoadedImage
from rdma_images.layers.recipe import Recipe
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Repository

PARALLEL_DOWNLOADS = 2


@dataclass(frozen=True)
class DownloadedLayer:
    """A layer of a registry, of which `path` has the bytes, or will have."""

    content: Blob
    path: Path

    def blob(self, _part: str) -> Blob:
        """Return the layer's blob."""
        return self.content

    def file(self, _part: str) -> Path:
        """Return the path of the bytes."""
        return self.path

    def discard(self, _part: str) -> RdmaImagesError:
        """Remove the bytes, which are not what they were; return the error that says so."""
        self.path.unlink(missing_ok=True)
        return RdmaImagesError(
            f"{self.path}: this layer was damaged since it was downloaded, and is removed\n"
            "build again: it is downloaded anew; see with `dmesg` whether the disk fails"
        )


@dataclass(frozen=True)
class DownloadSource:
    """Layers by the key of their recipe."""

    layers: Mapping[str, Future[LayerFile]]

    def layer_future(self, recipe: Recipe) -> Future[LayerFile]:
        """Return the future of a layer, or of the RdmaImagesError why it is missing."""
        return self.layers[recipe.key]


@contextmanager
def fetching(
    layer_set: LayerSet,
    loaded_image: LoadedImage,
    repository: Repository,
    engine_layers: EngineLayers,
    stop: threading.Event,
    progress: Progress = silent,
) -> Iterator[DownloadSource]:
    """Download the layers of an image for the block, lowest first.

    Not downloaded are those that the engine has and those that this machine made. Setting `stop` ends the downloads,
    and an error in the block sets it. Raises RdmaImagesError for a full disk. For one build at a time.
    """
    folder = paths.state_folder() / "fetched"
    shutil.rmtree(folder, ignore_errors=True)  # what a killed build left
    layers: dict[str, Future[LayerFile]] = {}
    # By digest: layers can be equal, as those of wheels that have nothing for devel.
    pending_blobs: dict[str, DownloadedLayer] = {}
    for recipe, blob in zip(layer_set.recipes, loaded_image.blobs, strict=True):
        local, fetched = layer_store.find(recipe), DownloadedLayer(blob, folder / blob.digest.rpartition(":")[2])
        if local and local.blob(layer_set.part) == blob:
            layers[recipe.key] = _completed(local)
        elif engine_layers.has(blob):
            layers[recipe.key] = _completed(fetched)
        else:
            pending_blobs[blob.digest] = fetched
    size = sum(layer.content.size for layer in pending_blobs.values())
    disk_space.require(size, f"downloading wheels' layers from {repository.ref}")
    with files.as_file_error(folder):
        folder.mkdir(parents=True)
    progress(f"downloading {format_megabytes(size)} of wheel layers from {repository.ref}")
    try:
        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            downloads = {
                digest: pool.submit(_fetch, layer, repository, stop, progress)
                for digest, layer in pending_blobs.items()
            }
            for recipe, blob in zip(layer_set.recipes, loaded_image.blobs, strict=True):
                if recipe.key not in layers:
                    layers[recipe.key] = downloads[blob.digest]
            try:
                yield DownloadSource(layers)
            except BaseException:
                stop.set()
                raise
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _completed(layer: LayerFile) -> Future[LayerFile]:
    future: Future[LayerFile] = Future()
    future.set_result(layer)
    return future


def _fetch(layer: DownloadedLayer, repository: Repository, stop: threading.Event, progress: Progress) -> LayerFile:
    save = partial(repository.save, layer.content.digest, layer.path, stop)
    registry_errors.retry_cached(save, progress, stop.wait)
    return layer
