"""The recipe of a layer: all that decides its bytes, and the digest that names it."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version

import zstandard

from rdma_images.core import paths
from rdma_images.core.compression import Compression
from rdma_images.inputs.wheels import Wheel
from rdma_images.render.wheel_layers import WheelLayer

# The version of this code, by compression. Raise it when the code writes other bytes for the same wheels.
FORMAT_VERSIONS: Mapping[Compression, int] = {"zstd": 2, "gzip": 2}
# Blocks of zeros at the end of the tar, where readers need two. More make the diff ids of each compression differ from
# each other and from BuildKit's for the same files: of two blobs with one diff id BuildKit takes the first that it saw,
# and compresses it again for an image with the other. Version 1 in zstd had two, and no table of contents.
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
        """Return the digest of everything that decides the bytes: 64 hexadecimal digits."""
        inputs = {
            "edition": FORMAT_VERSIONS[self.compression],
            "wheels": sorted((wheel.file, wheel.sha256) for wheel in self.wheels),
            "devel files": devel_patterns(),
            "prefix": PREFIX,
            "installer": _installer(),
            "compression": compressor(self.compression),
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()

    @property
    def title(self) -> str:
        """Return the content of the layer in words, for an image's history."""
        wheels = [f"{wheel.name} {wheel.version}" for wheel in self.wheels]
        return f"wheel {wheels[0]}" if len(wheels) == 1 else f"{len(wheels)} wheels: {', '.join(wheels)}"


@cache
def _installer() -> str:
    """Return the version of `installer`, cached: reading it takes 0.02 s."""
    return version("installer")


def layer_recipe(layer: WheelLayer, compression: Compression) -> Recipe:
    """Return the recipe of a layer of an image."""
    return Recipe(layer.stage, layer.wheels, compression)


def compressor(compression: Compression) -> str:
    """Return compression, library version and level, which decide a blob's bytes."""
    versions = {"zstd": ".".join(map(str, zstandard.ZSTD_VERSION)), "gzip": zlib.ZLIB_RUNTIME_VERSION}
    return f"{compression} {versions[compression]} level {LEVELS[compression]}"


def devel_patterns() -> str:
    """Return the patterns of the files that a runtime image lacks, one a line."""
    lines = paths.find_data("dockerfiles/devel-files.txt").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("#"))
