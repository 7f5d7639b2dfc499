"""Read NCCL's releases: the CUDA majors that have a wheel, and the plugin interfaces inside."""

from collections.abc import Iterable, Iterator, Mapping

from rdma_images.core import versions
from rdma_images.core.errors import RdmaImagesError
from rdma_images.facts import Facts
from rdma_images.facts.nccl import NcclRelease
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.maintain.facts_update import abi
from rdma_images.maintain.facts_update.index import MACHINES, IndexClient, base_pythons, wheel_file_name
from rdma_images.maintain.facts_update.reading import Reading, Value

FILE = "nccl.yaml"
INTERFACES = ("net", "tuner", "profiler", "gin", "rma", "env")


def readings(index: IndexClient, facts: Facts, mirrors: Mirrors, again: Iterable[str]) -> Iterator[Reading]:
    """Yield every release that the facts lack, as a whole or for a CUDA major, then the releases to read `again`."""
    releases = facts.nccl.releases
    floor = min(releases, key=versions.key)
    majors: dict[str, set[int]] = {version: set(releases[version].cuda) for version in again}
    for major in map(int, facts.cuda.majors):
        known_versions = [version for version, release in releases.items() if major in release.cuda]
        for version in index.unknown(_package(major), floor, known_versions, base_pythons(facts)):
            earlier = releases[version].cuda if version in releases else ()
            majors.setdefault(version, set(earlier)).add(major)
    for version in versions.newest_first(majors):
        if row := _read(index, mirrors, version, sorted(majors[version])):
            yield Reading(FILE, version, row, _row(releases[version]) if version in releases else None)


def _read(index: IndexClient, mirrors: Mirrors, version: str, majors: list[int]) -> dict[str, Value]:
    """Return the row of a release as its wheels have it; empty for one without a wheel for x86_64.

    Raises RdmaImagesError when the wheels of two majors differ.
    """
    wheels = {major: wheel for major in majors if (wheel := _wheel_address(index, major, version))}
    if not wheels:
        return {}
    interfaces = [abi.wheel_interfaces(wheel, mirrors) for wheel in wheels.values()]
    if any(other != interfaces[0] for other in interfaces):
        raise RdmaImagesError(
            f"NCCL {version} has other plugin interfaces in one CUDA major than in another\n"
            "add its row to facts/nccl.yaml by hand"
        )
    row: dict[str, Value] = {"cuda": _words(wheels)}
    return row | {name: _words(interfaces[0][name]) for name in INTERFACES if name in interfaces[0]}


def _row(release: NcclRelease) -> Mapping[str, Value]:
    """Return what the facts say of a release, in the same shape."""
    row: dict[str, Value] = {"cuda": _words(release.cuda)}
    return row | {name: _words(numbers) for name in INTERFACES if (numbers := getattr(release, name))}


def _package(major: int) -> str:
    return f"nvidia-nccl-cu{major}"


def _wheel_address(index: IndexClient, major: int, version: str) -> str | None:
    """Return the address of the wheel for x86_64; None where there is none."""
    ending = f"{MACHINES['linux/amd64']}.whl"
    wheels = index.wheels(_package(major), version)
    return next((address for address in wheels if wheel_file_name(address).endswith(ending)), None)


def _words(numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, numbers))
