"""Read one file of a layer by its table of contents, as a node's snapshotter does."""

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zstandard

FOOTER = struct.Struct("<4Q8s")
MAGIC = b"GnUlInUx"


class DigestMismatchError(Exception):
    """A piece of a file, or the table itself, has other bytes than its digest says."""


@dataclass
class LazyReader:
    """A layer of which only ranges are read; `fetched` counts their bytes.

    Raises DigestMismatchError for a table whose digest is not `toc`.
    """

    size: int
    toc: str  # from the layer's descriptor
    read_range: Callable[[int, int], bytes]  # offset, length
    fetched: int = 0

    def __post_init__(self) -> None:
        footer = self._range(self.size - FOOTER.size, FOOTER.size)
        offset, packed, raw, kind, magic = FOOTER.unpack(footer)
        assert (kind, magic) == (1, MAGIC)
        table = zstandard.ZstdDecompressor().decompress(self._range(offset, packed))
        assert len(table) == raw
        self._check(table, self.toc)
        self.files_end = offset - 8  # of the files; a skippable frame's header has 8 bytes
        self.entries: list[dict[str, Any]] = json.loads(table)["entries"]

    def entry(self, path: str) -> dict[str, Any]:
        """Return the row of a path that is no further piece of a file."""
        (row,) = (row for row in self.entries if row["name"] == path and row["type"] != "chunk")
        return row

    def pieces(self, path: str) -> list[dict[str, Any]]:
        """Return the rows of a file's pieces, in their order."""
        return [row for row in self.entries if row["name"] == path and "offset" in row]

    def read(self, path: str, begin: int = 0, length: int | None = None) -> bytes:
        """Return a range of a file's content, and fetch only the pieces that hold some of it."""
        row = self.entry(path)
        if row["type"] == "hardlink":
            return self.read(row["linkName"], begin, length)
        stop = row.get("size", 0) if length is None else begin + length
        content, first = b"", 0
        for piece in self.pieces(path):
            offset = piece.get("chunkOffset", 0)
            if offset < stop and offset + piece["chunkSize"] > begin:
                first = first if content else offset
                content += self._piece(piece)
        return content[begin - first : stop - first]

    def _piece(self, piece: dict[str, Any]) -> bytes:
        later = [row["offset"] for row in self.entries if row.get("offset", 0) > piece["offset"]]
        packed = self._range(piece["offset"], min([*later, self.files_end]) - piece["offset"])
        try:
            content = zstandard.ZstdDecompressor().decompressobj().decompress(packed)[: piece["chunkSize"]]
        except zstandard.ZstdError as error:
            raise DigestMismatchError(str(error)) from None
        self._check(content, piece["chunkDigest"])
        return content

    def _range(self, offset: int, length: int) -> bytes:
        self.fetched += length
        return self.read_range(offset, length)

    @staticmethod
    def _check(content: bytes, digest: str) -> None:
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise DigestMismatchError(digest)
