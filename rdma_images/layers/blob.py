"""Files as one layer of an image: a tar whose bytes depend on nothing but them, compressed and hashed on the way."""

import hashlib
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol
from zipfile import ZipFile

import zstandard

from rdma_images.layers.recipe import END_BLOCKS, LEVELS
from rdma_images.layers.tree import Entry, chunks
from rdma_images.render.bake import Compression

CHUNK = 1 << 18  # bytes
TIME = 315532800  # 1980-01-01, the earliest time that a wheel can hold
LINKED = 64 * 1024  # bytes: equal files from this size on are one file with several names
MEDIA_TYPES: Mapping[Compression, str] = {
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
}


@dataclass(frozen=True)
class Blob:
    """A layer as an image's manifest and config name it; `size` in bytes."""

    media_type: str
    digest: str  # "sha256:…", of the blob
    diff_id: str  # "sha256:…", of the tar in it
    size: int

    def is_in(self, file: Path) -> bool:
        """Return whether the file has these bytes; not where it cannot be read."""
        try:
            with file.open("rb") as opened:
                return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}" == self.digest
        except OSError:
            return False


def write(entries: Iterable[Entry], to: IO[bytes], compression: Compression) -> Blob:
    """Write a layer of `entries`, which are in the order of their paths, and say what it is.

    No more than a piece of one file is in memory. Raises WheelError for a content that is not what its wheel says.
    """
    out = _Writer(to, compression)
    folders_: set[str] = set()
    linked: dict[tuple[str, int, bool], str] = {}
    with ExitStack() as stack:
        archives: dict[Path, ZipFile] = {}
        for entry in entries:
            for folder in _new_folders(entry.path, folders_):
                out.header(folder, tarfile.DIRTYPE, executable=True)
            first = linked.setdefault((entry.digest, entry.size, entry.executable), entry.path)
            if entry.wheel not in archives and entry.content is None:
                archives[entry.wheel] = stack.enter_context(ZipFile(entry.wheel))
            pieces = chunks(entry, archives[entry.wheel], CHUNK) if entry.content is None else [entry.content]
            if first != entry.path and entry.size >= LINKED:
                for _ in pieces:  # compared with RECORD all the same
                    pass
                out.header(entry.path, tarfile.LNKTYPE, entry.executable, link=first)
                continue
            out.header(entry.path, tarfile.REGTYPE, entry.executable, entry.size)
            for piece in pieces:
                out.write(piece)
            out.write(bytes(-entry.size % tarfile.BLOCKSIZE))
    return out.finish()


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _Writer:
    """A tar on its way through the compressor into a file."""

    def __init__(self, to: IO[bytes], compression: Compression) -> None:
        self._to = to
        self._compression = compression
        self._compressor = _compressor(compression)
        self._digest, self._diff_id = hashlib.sha256(), hashlib.sha256()
        self._size = 0

    def header(self, path: str, type: bytes, executable: bool, size: int = 0, link: str = "") -> None:
        """Write the header of one member."""
        info = tarfile.TarInfo(path)
        info.type, info.size, info.linkname = type, size, link
        info.mode, info.mtime = 0o755 if executable else 0o644, TIME
        self.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))

    def write(self, data: bytes) -> None:
        """Write bytes of the tar."""
        self._diff_id.update(data)
        self._put(self._compressor.compress(data))

    def finish(self) -> Blob:
        """End the tar, and return what it is."""
        self.write(bytes(END_BLOCKS[self._compression] * tarfile.BLOCKSIZE))
        self._put(self._compressor.flush())
        digest, diff_id = (f"sha256:{hasher.hexdigest()}" for hasher in (self._digest, self._diff_id))
        return Blob(MEDIA_TYPES[self._compression], digest, diff_id, self._size)

    def _put(self, data: bytes) -> None:
        if data:
            self._to.write(data)
            self._digest.update(data)
            self._size += len(data)


def _compressor(compression: Compression) -> _Compressor:
    level = LEVELS[compression]
    if compression == "zstd":
        return zstandard.ZstdCompressor(level=level).compressobj()
    # 16 more than the window: a gzip header, in which zlib writes no time and no name.
    return zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS + 16)


def _new_folders(path: str, folders: set[str]) -> list[str]:
    """Add the folders around `path` to `folders`, and return those that are new, the outermost first."""
    new = []
    for folder in PurePosixPath(path).parents:
        name = str(folder)
        if name == "." or name in folders:
            break
        folders.add(name)
        new.append(name)
    return new[::-1]
