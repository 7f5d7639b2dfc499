"""What decides a layer's bytes, known before anything of it is there, and without what makes it."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version

import zstandard

from rdma_images.core import paths
from rdma_images.inputs.wheels import Wheel
from rdma_images.render.bake import Compression
from rdma_images.render.wheel_layers import WheelLayer

# Of this code, by the compression: to be raised when it makes other bytes of the same.
EDITIONS: Mapping[Compression, int] = {"zstd": 2, "gzip": 2}
# Blocks of zeros at the end of the tar; a reader wants two. With more, each compression has diff ids of its own, which
# differ from BuildKit's for the same files: of two blobs with one diff id BuildKit takes the first that it saw, and
# compresses it again for an image with the other. Edition 1 in zstd had two, and no table of contents.
END_BLOCKS: Mapping[Compression, int] = {"zstd": 4, "gzip": 3}
PREFIX = "opt/venv"  # where a wheel is installed
# Measured with torch's wheels: level 2 is twice as fast as 3 for 1.6% more bytes.
LEVELS: Mapping[Compression, int] = {"zstd": 2, "gzip": 6}


@dataclass(frozen=True)
class Recipe:
    """A layer to be made: equal keys are equal bytes, on every machine."""

    name: str  # "wheel-torch"
    wheels: tuple[Wheel, ...]
    compression: Compression

    @cached_property
    def key(self) -> str:
        """64 hexadecimal digits."""
        decides = {
            "edition": EDITIONS[self.compression],
            "wheels": sorted((wheel.file, wheel.sha256) for wheel in self.wheels),
            "devel files": devel_files(),
            "prefix": PREFIX,
            "installer": _installer(),
            "compression": coder(self.compression),
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def title(self) -> str:
        """The content of the layer in words, for an image's history."""
        wheels = [f"{wheel.name} {wheel.version}" for wheel in self.wheels]
        return f"wheel {wheels[0]}" if len(wheels) == 1 else f"{len(wheels)} wheels: {', '.join(wheels)}"


@cache
def _installer() -> str:
    """Return the version of what lays a wheel out; asking once for each layer took 0.02 s."""
    return version("installer")


def recipe(layer: WheelLayer, compression: Compression) -> Recipe:
    """Return how to make a layer of an image."""
    return Recipe(layer.stage, layer.wheels, compression)


def coder(compression: Compression) -> str:
    """Return what decides the bytes of a blob beside its files: the library, its version and the level."""
    versions = {"zstd": ".".join(map(str, zstandard.ZSTD_VERSION)), "gzip": zlib.ZLIB_RUNTIME_VERSION}
    return f"{compression} {versions[compression]} level {LEVELS[compression]}"


def devel_files() -> str:
    """Return the patterns of what is left out of a runtime image, a line each."""
    lines = paths.find_data("dockerfiles/devel-files.txt").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("#"))
