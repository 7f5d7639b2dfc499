"""Read NCCL releases: CUDA majors with a wheel, and plugin interfaces."""

import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from rdma_images.core import versions
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import MACHINES
from rdma_images.core.progress import Progress
from rdma_images.facts import Facts
from rdma_images.inputs.download import DownloadSettings, download
from rdma_images.maintain.facts_update.index_client import IndexClient, base_pythons, wheel_file_name
from rdma_images.maintain.facts_update.reading import Reading, Value

FILE = "nccl.yaml"
INTERFACES = ("net", "tuner")
LIBRARY = "libnccl.so.2"
CHUNK = 1 << 20  # bytes read at a time
# The symbols that NCCL looks up in a plugin, by the name of the interface in facts/nccl.yaml.
SYMBOL = re.compile(rb"nccl(Net|Tuner)Plugin_v(\d+)\b")
MAX_SYMBOL_BYTES = 64  # bytes; longer than any such symbol, so that none is cut between two chunks


def readings(index: IndexClient, facts: Facts, progress: Progress) -> Iterator[Reading]:
    """Yield the releases that the facts lack, for any CUDA major."""
    releases = facts.nccl.releases
    floor = min(releases, key=versions.sort_key)
    majors: dict[str, set[int]] = {}
    for major in map(int, facts.cuda.majors):
        for version in index.unknown(_package(major), floor, releases, base_pythons(facts)):
            majors.setdefault(version, set()).add(major)
    for version in versions.newest_first(majors):
        if row := _read_values(index, version, sorted(majors[version]), progress):
            yield Reading(FILE, version, row)


def _read_values(index: IndexClient, version: str, majors: list[int], progress: Progress) -> dict[str, Value]:
    """Return a release's row from its wheels; empty without a wheel for x86_64.

    The wheels of all majors are of one source: the interfaces are read from one of them.
    """
    addresses = {major: _wheel_address(index, major, version) for major in majors}
    wheels = {major: address for major, address in addresses.items() if address}
    if not wheels:
        return {}
    interfaces = wheel_interfaces(next(iter(wheels.values())), index, progress)
    row: dict[str, Value] = {"cuda": _join(wheels)}
    return row | {name: _join(interfaces[name]) for name in INTERFACES if name in interfaces}


def _package(major: int) -> str:
    return f"nvidia-nccl-cu{major}"


def _wheel_address(index: IndexClient, major: int, version: str) -> str | None:
    """Return the address of the wheel for x86_64, or None."""
    ending = f"{MACHINES['linux/amd64']}.whl"
    wheels = index.wheels(_package(major), version)
    return next((address for address in wheels if wheel_file_name(address).endswith(ending)), None)


def _join(numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, numbers))


def wheel_interfaces(address: str, index: IndexClient, progress: Progress) -> dict[str, tuple[int, ...]]:
    """Return the interfaces that the libnccl.so.2 in a wheel asks for. Raises RdmaImagesError."""
    name = wheel_file_name(address)
    with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
        file = Path(folder) / name
        download(address, file, DownloadSettings(name, index.mirrors, progress))
        with (
            zipfile.ZipFile(file) as wheel,
            wheel.open(next(path for path in wheel.namelist() if path.endswith(f"/{LIBRARY}"))) as library,
        ):
            return library_interfaces(library)


def library_interfaces(library: IO[bytes]) -> dict[str, tuple[int, ...]]:
    """Return an NCCL library's plugin interface versions, by "net", "tuner" and so on."""
    versions_by_interface: dict[str, set[int]] = {}
    tail = b""
    while chunk := library.read(CHUNK):
        text = tail + chunk
        for word, version in SYMBOL.findall(text):
            versions_by_interface.setdefault(word.decode().lower(), set()).add(int(version))
        tail = text[-MAX_SYMBOL_BYTES:]
    if "net" not in versions_by_interface:
        raise RdmaImagesError(f"{LIBRARY}: names no net plugin interface\nadd its row to facts/nccl.yaml by hand")
    return {name: tuple(sorted(library_versions)) for name, library_versions in versions_by_interface.items()}
