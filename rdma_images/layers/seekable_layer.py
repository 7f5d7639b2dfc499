"""A tar as frames of zstd with a table of contents, so that a node can read one file of a layer without the others.

Its form is zstd:chunked as containerd's stargz-snapshotter reads it (its repository has the form of the footer in
estargz/zstdchunked, that of the table in docs/estargz.md). Other readers skip the table: zstd has frames for that.
"""

import hashlib
import json
import struct
import tarfile
from collections.abc import Iterable, Iterator, Mapping

import zstandard

ANNOTATION = "containerd.io/snapshot/stargz/toc.digest"  # of a layer's descriptor: a node verifies the table by it
TIME = "1980-01-01T00:00:00Z"  # of every member, as in its header
PIECE = 4 << 20  # bytes of a file in one frame, as the snapshotter's own converter cuts them
FOOTER = struct.Struct("<4Q8s")  # offset and size of the compressed table, its own size, its kind, MAGIC
MAGIC = b"GnUlInUx"
TABLE_KIND = 1
SKIPPABLE = 0x184D2A50
TYPES = {tarfile.DIRTYPE: "dir", tarfile.REGTYPE: "reg", tarfile.LNKTYPE: "hardlink"}
# Without it, a node that prefetches the first bytes of each layer (ctr-remote: 10 MiB) fetches whole files for them.
NO_PREFETCH: Mapping[str, object] = {"name": ".no.prefetch.landmark", "type": "reg"}


class FrameCompressor:
    """Compresses a tar: each file's content in frames of its own, and what lies between them in others."""

    def __init__(self, level: int) -> None:
        self._compressor = zstandard.ZstdCompressor(level=level)
        self._between = bytearray()  # headers and padding that are in no frame yet
        self._rows: list[dict[str, object]] = [dict(NO_PREFETCH)]
        self._offset = 0  # in the compressed bytes
        self.toc = ""  # "sha256:…", of the table; there once `finish` has ended

    def member(self, member: tarfile.TarInfo) -> None:
        """Note a member of the tar in the table; its header is compressed next."""
        row = {"name": member.name, "type": TYPES[member.type], "mode": member.mode, "modtime": TIME}
        optional = {
            "size": member.size,
            "linkName": member.linkname,
            "uid": member.uid,
            "gid": member.gid,
        }
        self._rows.append(row | {name: value for name, value in optional.items() if value})

    def compress(self, data: bytes) -> bytes:
        """Take headers or padding, compressed together before the next content; return the bytes that are complete."""
        self._between += data
        return b""

    def content(self, member: tarfile.TarInfo, pieces: Iterable[bytes], sha256: str = "") -> Iterator[bytes]:
        """Yield the compressed content of the member noted last; no piece lies in two multiples of PIECE.

        `sha256` is the content's, in hexadecimal, where it is known.
        """
        if not member.size:  # the next frame may hold its header, too
            yield from pieces
            return
        yield self._end_between()
        digest = sha256 if member.size <= PIECE else ""
        position = begin = 0
        for piece in pieces:
            if position == begin:
                length = min(PIECE, member.size - begin)
                frame, hasher = self._compressor.compressobj(size=length), hashlib.sha256()
                row: dict[str, object] = {"offset": self._offset, "chunkSize": length}
            if not digest:
                hasher.update(piece)
            position += len(piece)
            yield self._count(frame.compress(piece))
            if position == begin + length:
                yield self._count(frame.flush())
                row["chunkDigest"] = f"sha256:{digest or hasher.hexdigest()}"
                if begin:
                    self._rows.append({"name": member.name, "type": "chunk", "chunkOffset": begin, **row})
                else:
                    self._rows[-1] |= row
                begin = position

    def finish(self) -> bytes:
        """Return the end: what was not compressed yet, the table, and the footer that says where the table is."""
        end = self._end_between()
        table = json.dumps({"version": 1, "entries": self._rows}, separators=(",", ":")).encode()
        self.toc = f"sha256:{hashlib.sha256(table).hexdigest()}"
        packed = self._compressor.compress(table)
        offset = self._offset + len(_skippable(b""))
        footer = FOOTER.pack(offset, len(packed), len(table), TABLE_KIND, MAGIC)
        return end + _skippable(packed) + _skippable(footer)

    def _end_between(self) -> bytes:
        data = self._compressor.compress(bytes(self._between)) if self._between else b""
        self._between.clear()
        return self._count(data)

    def _count(self, data: bytes) -> bytes:
        self._offset += len(data)
        return data


def _skippable(content: bytes) -> bytes:
    return struct.pack("<2I", SKIPPABLE, len(content)) + content
