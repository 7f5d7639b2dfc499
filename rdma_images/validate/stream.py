"""What docker-py hands out in pieces, as one file."""

import io
from collections.abc import Iterator
from typing import Any


class Chunks(io.RawIOBase):
    """An iterator of bytes as a file that is read from start to end."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, b""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as the next piece goes; 0 at the end."""
        if not self._left:
            self._left = next(self._chunks, b"")
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size
