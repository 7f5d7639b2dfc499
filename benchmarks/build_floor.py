"""Measure what the bytes alone cost: the same wheels by plain fast tools.

No image comes of it. It bounds what any way of building can reach: the wheels have to be unpacked, compressed for a
registry, and unpacked again where the image is to run.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import zstandard
from uv import find_uv_bin

LEVEL = 3  # as our layers


def time_floor(requirements: str, python: str, platform: str, folder: Path) -> dict[str, float]:
    """Return the seconds of each step, on all cores where its tool can use them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wheels, blob, unpacked = folder / "wheels", folder / "wheels.tar.zst", folder / "unpacked"
    unpacked.mkdir()
    (folder / "requirements.txt").write_text(requirements)
    try:
        return {
            "floor, install": _timed(lambda: _install(folder, wheels, python, platform)),
            "floor, compress": _timed(lambda: _compress(wheels, blob)),
            "floor, unpack": _timed(lambda: _unpack(blob, unpacked)),
        }
    finally:
        shutil.rmtree(folder)


def _timed(step: Callable[[], None]) -> float:
    start = time.monotonic()
    step()
    return round(time.monotonic() - start, 2)


def _install(folder: Path, wheels: Path, python: str, platform: str) -> None:
    """Download, check and unpack, as a wheel's stage does: each file is written once."""
    cache = folder / "cache"
    command = [find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--python", sys.executable, "--python-version", python, "--python-platform", platform]
    command += ["--prefix", str(wheels)]
    command += ["--requirement", str(folder / "requirements.txt")]
    environ = os.environ | {"UV_CACHE_DIR": str(cache), "UV_LINK_MODE": "hardlink", "UV_NO_PROGRESS": "1"}
    subprocess.run(command, env=environ, check=True)
    shutil.rmtree(cache)


def _compress(wheels: Path, blob: Path) -> None:
    command = ["tar", "-cf", "-", "-C", str(wheels), "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tar, blob.open("wb") as target:
        assert tar.stdout is not None
        zstandard.ZstdCompressor(level=LEVEL, threads=-1).copy_stream(tar.stdout, target)


def _unpack(blob: Path, unpacked: Path) -> None:
    with blob.open("rb") as source, subprocess.Popen(["tar", "-xf", "-", "-C", unpacked], stdin=subprocess.PIPE) as tar:
        assert tar.stdin is not None
        zstandard.ZstdDecompressor().copy_stream(source, tar.stdin)
        tar.stdin.close()
