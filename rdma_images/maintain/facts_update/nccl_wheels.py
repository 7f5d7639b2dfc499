"""Read NCCL releases: CUDA majors with a wheel, and plugin interfaces."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING

import requests

from rdma_images.core import versions
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import MACHINES
from rdma_images.facts import Facts
from rdma_images.facts.gpu_software import NcclRelease
from rdma_images.inputs import web
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import wheel_file_name
from rdma_images.maintain.facts_update.index_client import IndexClient, base_pythons
from rdma_images.maintain.facts_update.reading import Reading, Value

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FILE = "nccl.yaml"
INTERFACES = ("net", "tuner")
LIBRARY = "libnccl.so.2"
CHUNK = 1 << 20  # bytes read at a time; the strings are in the first 4 MB of today's libraries
WHEEL_TIMEOUT_SECONDS = (10.0, 60.0)  # seconds to connect, seconds without a byte
# The symbols that NCCL looks up in a plugin, by the name of the interface in facts/nccl.yaml.
SYMBOL = re.compile(rb"nccl(Net|Tuner)Plugin_v(\d+)\b")
MAX_SYMBOL_BYTES = 64  # bytes; longer than any such symbol, so that none is cut between two chunks
# How device code begins. It follows the strings and is 95% of the library; so it is in every wheel of facts/nccl.yaml.
DEVICE_CODE = b"\x50\xed\x55\xba"


def readings(index: IndexClient, facts: Facts, mirrors: Mirrors, reread: Iterable[str]) -> Iterator[Reading]:
    """Yield the releases that the facts lack, for any CUDA major, then those of `reread`."""
    releases = facts.nccl.releases
    floor = min(releases, key=versions.sort_key)
    majors: dict[str, set[int]] = {version: set(releases[version].cuda) for version in reread}
    for major in map(int, facts.cuda.majors):
        known_versions = [version for version, release in releases.items() if major in release.cuda]
        for version in index.unknown(_package(major), floor, known_versions, base_pythons(facts)):
            recorded_majors = releases[version].cuda if version in releases else ()
            majors.setdefault(version, set(recorded_majors)).add(major)
    for version in versions.newest_first(majors):
        if row := _read_values(index, mirrors, version, sorted(majors[version])):
            yield Reading(FILE, version, row, row_values(releases[version]) if version in releases else None)


def _read_values(index: IndexClient, mirrors: Mirrors, version: str, majors: list[int]) -> dict[str, Value]:
    """Return a release's row from its wheels; empty without a wheel for x86_64.

    Raises RdmaImagesError when the wheels of two majors differ.
    """
    addresses = {major: _wheel_address(index, major, version) for major in majors}
    wheels = {major: address for major, address in addresses.items() if address}
    if not wheels:
        return {}
    interfaces = [wheel_interfaces(wheel, mirrors) for wheel in wheels.values()]
    if any(interface != interfaces[0] for interface in interfaces):
        raise RdmaImagesError(
            f"NCCL {version} has other plugin interfaces in one CUDA major than in another\n"
            "add its row to facts/nccl.yaml by hand"
        )
    row: dict[str, Value] = {"cuda": _join(wheels)}
    return row | {name: _join(interfaces[0][name]) for name in INTERFACES if name in interfaces[0]}


def row_values(release: NcclRelease) -> Mapping[str, Value]:
    """Return what the facts say of a release, in the same shape."""
    row: dict[str, Value] = {"cuda": _join(release.cuda)}
    return row | {name: _join(getattr(release, name)) for name in INTERFACES if getattr(release, name)}


def _package(major: int) -> str:
    return f"nvidia-nccl-cu{major}"


def _wheel_address(index: IndexClient, major: int, version: str) -> str | None:
    """Return the address of the wheel for x86_64; None where there is none."""
    ending = f"{MACHINES['linux/amd64']}.whl"
    wheels = index.wheels(_package(major), version)
    return next((address for address in wheels if wheel_file_name(address).endswith(ending)), None)


def _join(numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, numbers))


class RemoteFile(io.RawIOBase):
    """A file on a server that answers range requests, to be read like one on disk."""

    def __init__(self, address: str, mirrors: Mirrors) -> None:
        """Ask for the size. Raises what web.request raises."""
        super().__init__()
        self._address, self._mirrors, self._position = address, mirrors, 0
        self.bytes_fetched = 0  # bytes so far
        with web.request("HEAD", address, mirrors, WHEEL_TIMEOUT_SECONDS) as response:
            self._size = int(response.headers["Content-Length"])

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set and return the position of the next byte."""
        self._position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence] + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill `buffer` from the position on, and return the number of bytes; 0 at the end."""
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._size)
        if stop <= self._position:
            return 0
        headers = {"Range": f"bytes={self._position}-{stop - 1}"}
        with web.request("GET", self._address, self._mirrors, WHEEL_TIMEOUT_SECONDS, headers) as response:
            if response.status_code != requests.codes.partial_content:
                raise RdmaImagesError(
                    f"{self._address}: the server does not support range requests\nset an index that does"
                )
            content = response.content
        view[: len(content)] = content
        self._position += len(content)
        self.bytes_fetched += len(content)
        return len(content)


def wheel_interfaces(address: str, mirrors: Mirrors) -> dict[str, tuple[int, ...]]:
    """Return the interfaces that the libnccl.so.2 in a wheel asks for. Raises RdmaImagesError."""
    try:
        with (
            zipfile.ZipFile(io.BufferedReader(RemoteFile(address, mirrors), CHUNK)) as wheel,
            wheel.open(next(name for name in wheel.namelist() if name.endswith(f"/{LIBRARY}"))) as library,
        ):
            return library_interfaces(library)
    except StopIteration:
        raise RdmaImagesError(f"{address}: has no {LIBRARY}\nadd its row to facts/nccl.yaml by hand") from None
    except (requests.RequestException, web.StatusError, zipfile.BadZipFile, KeyError) as error:
        raise RdmaImagesError(
            f"{address}: {web.describe_error(error, mirrors)}\ntry later, or set an index that answers"
        ) from None


def library_interfaces(library: IO[bytes]) -> dict[str, tuple[int, ...]]:
    """Return an NCCL library's plugin interface versions, by "net", "tuner" and so on.

    Reads the file up to the device code.
    """
    versions_by_interface: dict[str, set[int]] = {}
    tail = b""
    while chunk := library.read(CHUNK):
        text = tail + chunk
        for word, version in SYMBOL.findall(text):
            versions_by_interface.setdefault(word.decode().lower(), set()).add(int(version))
        if versions_by_interface and DEVICE_CODE in text:
            break
        tail = text[-MAX_SYMBOL_BYTES:]
    if "net" not in versions_by_interface:
        raise RdmaImagesError(f"{LIBRARY}: names no net plugin interface\nadd its row to facts/nccl.yaml by hand")
    return {name: tuple(sorted(library_versions)) for name, library_versions in versions_by_interface.items()}
