"""Read torch releases: the pins of their wheels, and the Pythons that have one."""

import re
from collections.abc import Iterable, Iterator, Mapping

from packaging.utils import parse_wheel_filename

from rdma_images.core import versions
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import MACHINES, Platform
from rdma_images.facts import Facts, gpu_software
from rdma_images.maintain.facts_update.index_client import IndexClient, base_pythons, wheel_file_name
from rdma_images.maintain.facts_update.reading import Reading, Value

FILE = "torch.yaml"
USUAL_PYTHON = "3.12"  # pins do not differ by python; this one has had a wheel in every release since 2.2
_CUDA = re.compile(r"cuda-toolkit|nvidia-cuda-runtime-cu\d+")  # the first since 2.11, the second before
_CUDNN = re.compile(r"nvidia-cudnn-cu\d+")


def readings(index: IndexClient, facts: Facts) -> Iterator[Reading]:
    """Yield every release that the facts do not have."""
    releases = facts.torch.releases
    floor = min(releases, key=versions.sort_key)
    for version in index.unknown("torch", floor, releases, base_pythons(facts)):
        yield Reading(FILE, version, _read_values(index, version))


def _read_values(index: IndexClient, version: str) -> dict[str, Value]:
    """Return the row of a release, from the package index."""
    pythons = _pythons(index.wheels("torch", version), MACHINES["linux/amd64"])
    if not pythons:
        raise RdmaImagesError(
            f"torch {version} has no wheel for linux/amd64\nleave it out: facts/torch.yaml has releases for amd64"
        )
    python = USUAL_PYTHON if USUAL_PYTHON in pythons else pythons[0]
    pins = {platform: index.pins(f"torch=={version}", platform, python) for platform in MACHINES}
    platforms: list[Platform] = [platform for platform in MACHINES if _pinned(pins[platform], gpu_software.WHEEL_NAME)]
    amd64 = pins["linux/amd64"]
    return {
        "cuda": ".".join((_pinned(amd64, _CUDA) or "").split(".")[:2]),
        "cudnn": _pinned(amd64, _CUDNN) or "",
        "nccl": _pinned(amd64, gpu_software.WHEEL_NAME) or "",
        "python": tuple(pythons),
        "nccl-on": tuple(platforms),
    }


def _pinned(pins: Mapping[str, str], name: re.Pattern[str]) -> str | None:
    """Return the version of the package that `name` matches."""
    return next((version for package, version in pins.items() if name.fullmatch(package)), None)


def _pythons(wheels: Iterable[str], machine: str) -> list[str]:
    """Return the pythons that have a wheel for `machine`, oldest first.

    Free-threaded builds are not counted.
    """
    pythons: set[str] = set()
    for wheel in wheels:
        _, _, _, tags = parse_wheel_filename(wheel_file_name(wheel))
        for tag in tags:
            match = re.fullmatch(r"cp3(\d+)", tag.abi)
            if match and tag.platform.startswith(("linux", "manylinux")) and tag.platform.endswith(machine):
                pythons.add(f"3.{match[1]}")
    return sorted(pythons, key=versions.sort_key)
