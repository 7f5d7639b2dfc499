"""What docker-py hands out in pieces, as one file, and a tar that is too large to be remembered."""

import io
import tarfile
from collections.abc import Iterator
from typing import Any, cast

CHUNK = 1 << 20  # bytes


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
    """Yield the members of an archive that is read from start to end, each forgotten once the next is asked for.

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
    while data := remainder.read(CHUNK):
        if data.strip(b"\0"):
            raise tarfile.ReadError("a damaged tar: more follows its end")
