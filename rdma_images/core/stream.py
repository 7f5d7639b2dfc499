"""Streams as files: chunks of docker-py, large tar archives, frames of zstd."""

import io
import tarfile
from collections.abc import Iterator
from typing import IO, Any, cast

import zstandard

CHUNK = 1 << 20  # bytes
MAX_HEADER_BYTES = 18  # bytes of a frame's header with its magic number, RFC 8878, 3.1.1.1
SKIPPABLE = 0x184D2A50  # and the 15 numbers after it: magic numbers of frames without content, 3.1.2
RUN_LENGTH = 1  # the type of a block of one byte that is repeated, 3.1.1.2


class ChunkReader(io.RawIOBase):
    """An iterator of bytes as a file that is read from start to end."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._remaining = chunks, b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as the next piece goes; 0 at the end."""
        if not self._remaining:
            self._remaining = next(self._chunks, b"")
        size = min(len(buffer), len(self._remaining))
        buffer[:size], self._remaining = self._remaining[:size], self._remaining[size:]
        return size


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar that is read once, without keeping them in memory.

    Raises tarfile.ReadError for a name that leads out of the tree, which no file system holds, for a size below zero,
    which leads back, and where more comes after what tarfile takes for the end: another reader may not.
    """
    while member := archive.next():
        if member.size < 0:
            raise tarfile.ReadError(f"a damaged tar: {member.name!r} has the size {member.size}")
        if ".." in member.name.split("/"):
            raise tarfile.ReadError(f"a damaged tar: {member.name!r} leads out of the tree")
        yield member
        cast(Any, archive).members.clear()
    remainder = cast(io.BufferedIOBase, archive.fileobj)
    while chunk := remainder.read(CHUNK):
        if chunk.strip(b"\0"):
            raise tarfile.ReadError("a damaged tar: more follows its end")


class ZstdFrames(io.RawIOBase):
    """The decompressed content of all frames of `blob`, with cheap skipping of whole frames.

    Reading raises zstandard.ZstdError where it is damaged; EOFError where it ends too early.
    """

    def __init__(self, blob: IO[bytes]) -> None:
        self._blob, self._size = blob, blob.seek(0, io.SEEK_END)
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: IO[bytes] | None = None  # the one that is being read
        self._remaining = 0  # bytes of its content; more than there are where it does not say how many
        self._next = 0  # where the next frame begins in the blob
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True; see seek."""
        return True

    def tell(self) -> int:
        """Return the position in the content."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as the frame goes; 0 at the end of all."""
        decompressed = b""
        while not decompressed and (self._frame or self._begin(0)):
            decompressed = self._frame.read(len(buffer)) if self._frame else b""
            self._position += len(decompressed)
            self._remaining -= len(decompressed)
            if not decompressed or not self._remaining:
                self._frame = None
        buffer[: len(decompressed)] = decompressed
        return len(decompressed)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Skip forward to `offset`, at most to the end, and return the position."""
        if whence != io.SEEK_SET or offset < self._position:
            raise io.UnsupportedOperation("zstd is read forwards")
        while (remaining := offset - self._position) and (self._frame or self._begin(remaining)):
            if self._frame:
                self.read(min(remaining, self._remaining, CHUNK))
        return self._position

    def _begin(self, skipped: int) -> bool:
        """Begin the next frame, or skip it if it lies in `skipped` bytes; False at the end."""
        self._blob.seek(self._next)
        start = self._blob.read(MAX_HEADER_BYTES)
        if not start:
            return False
        if SKIPPABLE <= int.from_bytes(start[:4], "little") <= SKIPPABLE + 15:
            self._next += 8 + int.from_bytes(start[4:8], "little")
            return True
        parameters = zstandard.get_frame_parameters(start)
        first, self._next = (
            self._next,
            self._frame_end(self._next + zstandard.frame_header_size(start), parameters.has_checksum),
        )
        if self._next > self._size:
            raise EOFError("zstd data that ends within a frame")
        if parameters.content_size <= skipped:  # that of a frame that does not say it is 2 ** 64 - 1
            self._position += parameters.content_size
            return True
        self._blob.seek(first)
        frame = cast(IO[bytes], _Part(self._blob, self._next - first))
        self._frame = self._decompressor.stream_reader(frame, read_size=CHUNK)
        self._remaining = parameters.content_size
        return True

    def _frame_end(self, block: int, has_checksum: bool) -> int:
        """Return where a frame ends whose first block begins at `block`."""
        last = 0
        while not last:
            self._blob.seek(block)
            head = int.from_bytes(self._blob.read(3), "little") if block < self._size else 1
            last, kind, size = head & 1, head >> 1 & 3, head >> 3
            block += 3 + (1 if kind == RUN_LENGTH else size)
        return block + 4 * has_checksum


class _Part:
    """The next `size` bytes of a file."""

    def __init__(self, blob: IO[bytes], size: int) -> None:
        self._blob, self._remaining = blob, size

    def read(self, size: int) -> bytes:
        content = self._blob.read(min(size, self._remaining))
        self._remaining -= len(content)
        return content
