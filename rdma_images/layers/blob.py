"""Write files as a compressed image layer whose bytes depend on nothing else."""

import hashlib
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO
from zipfile import ZipFile

from rdma_images.core.compression import Compression
from rdma_images.layers import seekable_layer
from rdma_images.layers.recipe import END_BLOCKS, LEVELS
from rdma_images.layers.wheel_members import LayerMember, chunks

CHUNK = 1 << 18  # bytes
TIME = 315532800  # 1980-01-01, the earliest time that a wheel can hold
TIME_IN_TABLE = "1980-01-01T00:00:00Z"
MIN_LINKED_BYTES = 64 * 1024  # bytes: equal files from this size on are one file with several names
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
    toc: str = ""  # "sha256:…", of the table by which the layer is read in part; empty where it has none

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations of the layer in a manifest."""
        return {seekable_layer.ANNOTATION: self.toc} if self.toc else {}

    def is_in(self, file: Path) -> bool:
        """Return whether the file has these bytes; not where it cannot be read."""
        try:
            with file.open("rb") as stream:
                return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}" == self.digest
        except OSError:
            return False


def write(entries: Iterable[LayerMember], stream: IO[bytes], compression: Compression) -> Blob:
    """Write a layer of `entries`, which are in the order of their paths, and return its blob.

    No more than a piece of one file is in memory. Raises WheelError for a content that is not what its wheel says.
    """
    writer = LayerWriter(stream, compression)
    folders: set[str] = set()
    linked: dict[tuple[str, int, bool], str] = {}
    with ExitStack() as stack:
        archives: dict[Path, ZipFile] = {}
        for entry in entries:
            for folder in _new_folders(entry.path, folders):
                writer.write_header(folder, tarfile.DIRTYPE, executable=True)
            first_path = linked.setdefault((entry.digest, entry.size, entry.executable), entry.path)
            if entry.wheel not in archives:
                archives[entry.wheel] = stack.enter_context(ZipFile(entry.wheel))
            pieces = chunks(entry, archives[entry.wheel], CHUNK)
            if first_path != entry.path and entry.size >= MIN_LINKED_BYTES:
                for _ in pieces:  # compared with RECORD all the same
                    pass
                writer.write_header(entry.path, tarfile.LNKTYPE, entry.executable, link=first_path)
                continue
            member = writer.write_header(entry.path, tarfile.REGTYPE, entry.executable, entry.size)
            writer.write_content(member, pieces, entry.digest if entry.algorithm == "sha256" else "")
    writer.write_end(bytes(END_BLOCKS[compression] * tarfile.BLOCKSIZE))
    return writer.finish()


class _GzipStream:
    """Compresses a tar as one stream of gzip."""

    toc = ""

    def __init__(self, level: int) -> None:
        # 16 more than the window: a gzip header, in which zlib writes no time and no name.
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS + 16)
        self.compress, self.finish = self._compressor.compress, self._compressor.flush

    def note_member(self, member: tarfile.TarInfo, time: str) -> None:
        """Do nothing: a stream has no table."""

    def compress_content(self, _member: tarfile.TarInfo, pieces: Iterable[bytes], _sha256: str) -> Iterator[bytes]:
        """Compress the content of a member."""
        return map(self.compress, pieces)


class LayerWriter:
    """A tar on its way through the compressor into a file."""

    def __init__(self, stream: IO[bytes], compression: Compression) -> None:
        self._stream = stream
        self._compression = compression
        self._compressor = (seekable_layer.FrameCompressor if compression == "zstd" else _GzipStream)(
            LEVELS[compression]
        )
        self._digest, self._diff_id = hashlib.sha256(), hashlib.sha256()
        self._size = 0

    def write_header(self, path: str, type: bytes, executable: bool, size: int = 0, link: str = "") -> tarfile.TarInfo:
        """Write the header of a member, and return the member."""
        member = tarfile.TarInfo(path)
        member.type, member.size, member.linkname = type, size, link
        member.mode, member.mtime = 0o755 if executable else 0o644, TIME
        self.write_member_header(member, TIME_IN_TABLE, member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))
        return member

    def write_member_header(self, member: tarfile.TarInfo, time: str, header: bytes) -> None:
        """Write the header of a member, which is there already; `time` is in RFC 3339."""
        self._compressor.note_member(member, time)
        self._write(header)

    def write_content(self, member: tarfile.TarInfo, pieces: Iterable[bytes], sha256: str = "") -> None:
        """Write the content of the last header's member, padded; `sha256` where known."""
        for compressed in self._compressor.compress_content(member, map(self._hashed, pieces), sha256):
            self._write_compressed(compressed)
        self._write(bytes(-member.size % tarfile.BLOCKSIZE))

    def write_end(self, data: bytes) -> None:
        """Write what comes after the last member."""
        self._write(data)

    def finish(self) -> Blob:
        """End the compression, and return what was written."""
        self._write_compressed(self._compressor.finish())
        digest, diff_id = (f"sha256:{hasher.hexdigest()}" for hasher in (self._digest, self._diff_id))
        return Blob(MEDIA_TYPES[self._compression], digest, diff_id, self._size, self._compressor.toc)

    def _write(self, data: bytes) -> None:
        self._write_compressed(self._compressor.compress(self._hashed(data)))

    def _hashed(self, data: bytes) -> bytes:
        self._diff_id.update(data)
        return data

    def _write_compressed(self, data: bytes) -> None:
        if data:
            self._stream.write(data)
            self._digest.update(data)
            self._size += len(data)


def _new_folders(path: str, folders: set[str]) -> list[str]:
    """Add the folders around `path` to `folders`; return the new ones, outermost first."""
    created = []
    for folder in PurePosixPath(path).parents:
        name = str(folder)
        if name == "." or name in folders:
            break
        folders.add(name)
        created.append(name)
    return created[::-1]
