"""Make layers of wheels in two processes, while the next wheels download."""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from rdma_images.core import disk_space
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_megabytes
from rdma_images.inputs import wheel_files
from rdma_images.inputs.download import DownloadSettings
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Wheel, total_size
from rdma_images.layers import layer_store
from rdma_images.layers.layer_store import StoredLayer
from rdma_images.layers.make_wheel_layer import LayerTask, make_layer, process_pool
from rdma_images.layers.recipe import Recipe, devel_patterns

DOWNLOADS = 4  # at once
PROCESSES = 2  # the second core's worth is measured; more wait for the disk
MIN_PROCESS_BYTES = 4_000_000  # bytes to download: what is smaller is made sooner than a process starts
SPACE_FACTOR = 2  # bytes on the disk for a byte of a wheel: the wheel, and its layer


class LayerPool:
    """Make layers in the background while the next wheels download; a context manager.

    Setting `stop` ends the downloads.
    """

    def __init__(self, recipes: Iterable[Recipe], index: str, mirrors: Mirrors, progress: Progress = silent) -> None:
        self._recipes = {recipe.key: recipe for recipe in recipes}
        self._index, self._mirrors, self._progress = index, mirrors, progress
        self.stop = threading.Event()
        self._stack = ExitStack()
        self._ready: dict[str, Future[StoredLayer]] = {}

    def __enter__(self) -> "LayerPool":
        """Start to make the layers that the store lacks."""
        missing = []
        for recipe in self._recipes.values():
            if layer := layer_store.find(recipe):
                self._ready[recipe.key] = Future()
                self._ready[recipe.key].set_result(layer)
            else:
                missing.append(recipe)
        if missing:
            self._begin(missing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop what still runs; after success, remove the wheels and trim the store."""
        self.stop.set()
        self._stack.close()
        if error is None:
            for recipe in self._recipes.values():
                for wheel in recipe.wheels:
                    wheel_files.remove_wheel(wheel)
            layer_store.trim()

    def layer_future(self, recipe: Recipe) -> Future[StoredLayer]:
        """Return the future of a layer, which raises RdmaImagesError on failure."""
        return self._ready[recipe.key]

    def _begin(self, missing: Sequence[Recipe]) -> None:
        """Start to make the missing layers, the topmost, which is largest, first."""
        size = sum(total_size(recipe.wheels) for recipe in missing)
        disk_space.require_free_space(SPACE_FACTOR * size, "making the wheels' layers")
        self._progress(f"making {len(missing)} layers of wheels, {format_megabytes(size)} to download")
        processes = process_pool(PROCESSES)
        self._stack.callback(processes.shutdown, cancel_futures=True)
        downloads = ThreadPoolExecutor(DOWNLOADS)
        waiters = ThreadPoolExecutor(len(missing))
        self._stack.callback(waiters.shutdown, cancel_futures=True)
        self._stack.callback(downloads.shutdown, cancel_futures=True)
        for recipe in (missing[-1], *missing[:-1]):
            downloading = [downloads.submit(self._download, wheel) for wheel in recipe.wheels]
            self._ready[recipe.key] = waiters.submit(self._make_when_ready, recipe, downloading, processes)

    def _download(self, wheel: Wheel) -> Path:
        if self.stop.is_set():
            raise RdmaImagesError(f"{wheel.file}: stopped")
        settings = DownloadSettings(wheel.file, self._mirrors, self._progress, self.stop)
        return wheel_files.fetch_wheel(wheel, self._index, settings)

    def _make_when_ready(
        self, recipe: Recipe, downloads: Sequence[Future[Path]], processes: ProcessPoolExecutor
    ) -> StoredLayer:
        try:
            paths = [download.result() for download in downloads]
            sizes = [wheel.size for wheel in recipe.wheels]
            wheels = tuple(zip(paths, sizes, strict=True))

            def make(folder: Path) -> None:
                task = LayerTask(wheels, devel_patterns(), recipe.compression, folder)
                is_small = total_size(recipe.wheels) < MIN_PROCESS_BYTES
                for name in make_layer(task) if is_small else processes.submit(make_layer, task).result():
                    self._progress(f"{name}: its RECORD is wrong about its files; the image's has their own digests")

            layer = layer_store.get_or_build(recipe, make, self._progress)
        except BrokenProcessPool:
            raise RdmaImagesError(
                f"{recipe.name}: the process that made this layer was ended from outside; nothing of it is kept\n"
                "build again, with more memory if the system ended it"
            ) from None
        if len(recipe.wheels) == 1:  # a small one may be in another layer, too
            wheel_files.remove_wheel(recipe.wheels[0])
        return layer
