"""What a run of all tests leaves in the engine and the state folder: nothing new."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import Engine, docker_command, prune, status
from rdma_images.engine.layout import layout

SMALL = 1_000_000  # bytes: the builder keeps kilobytes of its own
FOLDERS = ("bases", "downloads", "layers")  # what builds keep there; the programs that tests unpack or compile stay


@dataclass(frozen=True)
class Snapshot:
    """What there was before the tests; `cache` is None where the engine does not tell it."""

    engine: Engine
    images: frozenset[prune.EngineImage]
    cache: int | None  # bytes
    files: frozenset[Path]

    @classmethod
    def take(cls) -> "Snapshot | None":
        """Return what the engine and the state folder have now; None where there is no engine."""
        try:
            running = engines.ensure()
            return cls(
                running, frozenset(prune.unused_images(running, ())), status.build_cache_bytes(layout()), stored_files()
            )
        except RdmaImagesError as error:
            print(f"what the tests leave is not removed: {error}", file=sys.stderr)
            return None

    @property
    def had_no_cache(self) -> bool:
        """Return whether all that will be in the builder's cache is the tests'."""
        return self.cache is not None and self.cache < SMALL

    def restore(self) -> None:
        """Remove new images and files of ours, and new entries of the builder's cache."""
        try:
            prune.remove(self.engine, [i for i in prune.unused_images(self.engine, ()) if i not in self.images])
            if self.cache is not None:
                self._shrink_cache(self.cache)
        except RdmaImagesError as error:
            print(f"what the tests left is not removed: {error}", file=sys.stderr)
        for path in stored_files() - self.files:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _shrink_cache(self, size: int) -> None:
        """Remove what the builder used least, until its cache has at most `size` bytes.

        BuildKit's own limit takes a layer that an image shares for freed, so a second pass asks for less.
        """
        limit = size
        for _ in range(3):
            prune_cache(self.engine, limit, "--all")
            excess = status.build_cache_bytes(layout()) - size
            if excess < SMALL:
                break
            limit = max(limit - excess, 0)


def prune_cache(engine: Engine, size: int, *options: str) -> None:
    """Remove what the builder used least, until what it has is at most `size` bytes.

    What is used by an image, without `--all`, or by a build that runs, stays and does not count.
    """
    docker_command.output(engine, "buildx", "prune", "--force", f"--keep-storage={size}", *options)


def stored_files() -> frozenset[Path]:
    """Return the files and folders that builds keep in the state folder."""
    return frozenset(path for name in FOLDERS for path in (paths.state_folder() / name).glob("*"))
