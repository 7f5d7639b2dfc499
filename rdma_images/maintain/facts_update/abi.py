"""Read which plugin interfaces a libnccl.so.2 asks for, from its strings, of which only the first MB are needed."""

from __future__ import annotations

import io
import re
import zipfile
from typing import IO, TYPE_CHECKING

import requests

from rdma_images.core.errors import RdmaImagesError
from rdma_images.inputs import web
from rdma_images.inputs.mirrors import Mirrors

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LIBRARY = "libnccl.so.2"
CHUNK = 1 << 20  # bytes read at a time; the strings are in the first 4 MB of today's libraries
TIMEOUT = (10.0, 60.0)  # seconds to connect, seconds without a byte
# The symbols that NCCL looks up in a plugin, by the name of the interface in facts/nccl.yaml.
SYMBOL = re.compile(rb"nccl(NetPlugin|TunerPlugin|Profiler|GinPlugin|RmaPlugin|EnvPlugin)_v(\d+)\b")
LONGEST = 64  # bytes; longer than any such symbol, so that none is cut between two chunks
# How device code begins. It follows the strings and is 95% of the library; so it is in every wheel of facts/nccl.yaml.
DEVICE_CODE = b"\x50\xed\x55\xba"


class RemoteFile(io.RawIOBase):
    """A file on a server that answers range requests, to be read like one on disk."""

    def __init__(self, address: str, mirrors: Mirrors) -> None:
        """Ask for the size. Raises what web.request raises."""
        super().__init__()
        self._address, self._mirrors, self._position = address, mirrors, 0
        self.fetched = 0  # bytes so far
        with web.request("HEAD", address, mirrors, TIMEOUT) as answer:
            self._size = int(answer.headers["Content-Length"])

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
        end = min(self._position + len(view), self._size)
        if end <= self._position:
            return 0
        headers = {"Range": f"bytes={self._position}-{end - 1}"}
        with web.request("GET", self._address, self._mirrors, TIMEOUT, headers) as answer:
            if answer.status_code != requests.codes.partial_content:
                raise RdmaImagesError(
                    f"{self._address}: the server does not support range requests\nset an index that does"
                )
            content = answer.content
        view[: len(content)] = content
        self._position += len(content)
        self.fetched += len(content)
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
    """Return the versions of each interface ("net", "tuner", …), oldest first; read no further than the device code."""
    versions_by_interface: dict[str, set[int]] = {}
    tail = b""
    while chunk := library.read(CHUNK):
        text = tail + chunk
        for word, version in SYMBOL.findall(text):
            versions_by_interface.setdefault(word.decode().removesuffix("Plugin").lower(), set()).add(int(version))
        if versions_by_interface and DEVICE_CODE in text:
            break
        tail = text[-LONGEST:]
    if "net" not in versions_by_interface:
        raise RdmaImagesError(f"{LIBRARY}: names no net plugin interface\nadd its row to facts/nccl.yaml by hand")
    return {name: tuple(sorted(versions)) for name, versions in versions_by_interface.items()}
