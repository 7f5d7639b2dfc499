"""A tar as zstd frames with a table of contents, for nodes that read single files.

Its form is zstd:chunked as containerd's stargz-snapshotter reads it (its repository has the form of the footer in
estargz/zstdchunked, that of the table in docs/estargz.md). Other readers skip the table: zstd has frames for that.
"""

import base64
import hashlib
import json
import struct
import tarfile
from collections.abc import Iterable, Iterator, Mapping

import zstandard

from rdma_images.core.stream import SKIPPABLE

ANNOTATION = "containerd.io/snapshot/stargz/toc.digest"  # of a layer's descriptor: a node verifies the table by it
PIECE = 4 << 20  # bytes of a file in one frame, as the snapshotter's own converter cuts them
FOOTER = struct.Struct("<4Q8s")  # offset and size of the compressed table, its own size, its kind, MAGIC
MAGIC = b"GnUlInUx"
TABLE_KIND = 1
TYPES = {
    tarfile.DIRTYPE: "dir",
    tarfile.REGTYPE: "reg",
    tarfile.AREGTYPE: "reg",
    tarfile.LNKTYPE: "hardlink",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
    tarfile.FIFOTYPE: "fifo",
}
XATTR = "SCHILY.xattr."  # before an extended attribute's name in a tar
# Without it, a node that prefetches the first bytes of each layer (ctr-remote: 10 MiB) fetches whole files for them.
NO_PREFETCH: Mapping[str, object] = {"name": ".no.prefetch.landmark", "type": "reg"}


class FrameCompressor:
    """Compress a tar, the content of each file in frames of its own."""

    def __init__(self, level: int) -> None:
        self._compressor = zstandard.ZstdCompressor(level=level)
        self._between = bytearray()  # headers and padding that are in no frame yet
        self._rows: list[dict[str, object]] = [dict(NO_PREFETCH)]
        self._offset = 0  # in the compressed bytes
        self.toc = ""  # "sha256:…", of the table; there once `finish` has ended

    def note_member(self, member: tarfile.TarInfo, time: str) -> None:
        """Note a member of the tar in the table; its header is compressed next."""
        row = {"name": member.name, "type": TYPES[member.type], "mode": member.mode, "modtime": time}
        optional = {
            "size": member.size,
            "linkName": member.linkname,
            "uid": member.uid,
            "gid": member.gid,
            "devMajor": member.devmajor,
            "devMinor": member.devminor,
            "xattrs": _extended_attributes(member),
        }
        self._rows.append(row | {name: value for name, value in optional.items() if value})

    def compress(self, data: bytes) -> bytes:
        """Take headers or padding for the next frame; return the complete bytes."""
        self._between += data
        return b""

    def compress_content(self, member: tarfile.TarInfo, pieces: Iterable[bytes], sha256: str = "") -> Iterator[bytes]:
        """Yield the compressed content of the member that was noted last.

        `sha256` is the content's, in hexadecimal, where it is known.
        """
        if not member.size:  # the next frame may hold its header, too
            yield from pieces
            return
        yield self._flush_between()
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
        """Return the last frame, the table of contents and its footer."""
        remainder = self._flush_between()
        table = json.dumps({"version": 1, "entries": self._rows}, separators=(",", ":")).encode()
        self.toc = f"sha256:{hashlib.sha256(table).hexdigest()}"
        packed = self._compressor.compress(table)
        offset = self._offset + len(skippable_frame(b""))
        footer = FOOTER.pack(offset, len(packed), len(table), TABLE_KIND, MAGIC)
        return remainder + skippable_frame(packed) + skippable_frame(footer)

    def _flush_between(self) -> bytes:
        compressed = self._compressor.compress(bytes(self._between)) if self._between else b""
        self._between.clear()
        return self._count(compressed)

    def _count(self, data: bytes) -> bytes:
        self._offset += len(data)
        return data


def _extended_attributes(member: tarfile.TarInfo) -> dict[str, str]:
    """Return a member's extended attributes, each value in base64."""
    return {
        name.removeprefix(XATTR): base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()
        for name, value in sorted(member.pax_headers.items())
        if name.startswith(XATTR)
    }


def skippable_frame(content: bytes) -> bytes:
    """Return a frame of zstd that readers of the layer pass over."""
    return struct.pack("<2I", SKIPPABLE, len(content)) + content
