"""Compress a foreign layer's tar, unchanged, into frames with a table of contents."""

import io
import math
import posixpath
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import IO

from rdma_images.core.errors import RdmaImagesError
from rdma_images.layers import seekable_layer
from rdma_images.layers.blob import CHUNK, Blob, LayerWriter

_NO_TABLE = "\nit cannot be read in part: publish it without --stargz"


class TarError(RdmaImagesError):
    """A tar that no table of contents can describe."""


def write(tar: IO[bytes], stream: IO[bytes]) -> Blob:
    """Compress a layer's tar into zstd frames with a table; return the blob.

    Raises TarError for a damaged tar, and for one that no table can describe.
    """
    writer, names, position = LayerWriter(stream, "zstd"), set[str](), 0
    tar.seek(0)
    try:
        with tarfile.open(fileobj=tar, mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                _check_member(member, names)
                writer.write_member_header(
                    member, _time_in_table(member), b"".join(_range(tar, position, member.offset_data))
                )
                position = member.offset_data
                if member.isreg():
                    position += member.size
                    writer.write_content(member, _range(tar, member.offset_data, position))
                    position += -member.size % tarfile.BLOCKSIZE
        for padding in _range(tar, position, tar.seek(0, io.SEEK_END)):
            if padding.strip(b"\0"):
                raise TarError(f"the tar of a layer is damaged after {position} bytes{_NO_TABLE}")
            writer.write_end(padding)
    except UnicodeEncodeError as error:
        raise TarError(f"the layer has a name that is no UTF-8: {error.object!r}{_NO_TABLE}") from None
    except (tarfile.TarError, EOFError, ValueError, OverflowError, ArithmeticError) as error:
        raise TarError(f"the tar of a layer cannot be read: {error}{_NO_TABLE}") from None
    return writer.finish()


def _check_member(member: tarfile.TarInfo, names: set[str]) -> None:
    """Add a member's name to `names`. Raises TarError for one a table cannot hold."""
    name, link = (posixpath.normpath(path.lstrip("/")) for path in (member.name, member.linkname))
    if member.type not in seekable_layer.TYPES or member.issparse():
        raise TarError(f"the layer has {member.name} of the type {member.type.decode(errors='replace')!r}{_NO_TABLE}")
    if member.islnk() and link not in names:
        raise TarError(f"in the layer, {member.name} is a link to {member.linkname}, which is not in it{_NO_TABLE}")
    if name in names and not member.isdir():
        raise TarError(f"the layer has {member.name} twice{_NO_TABLE}")
    name.encode()
    member.linkname.encode()
    names.add(name)


def _time_in_table(member: tarfile.TarInfo) -> str:
    """Return a member's time to the last digit; tarfile has it as a float, which rounds."""
    time = Decimal(member.pax_headers.get("mtime", member.mtime))
    seconds = math.floor(time)
    nanoseconds = int((time - seconds) * 10**9)
    fraction = f".{nanoseconds:09}" if nanoseconds else ""
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix('+00:00')}{fraction}Z"


def _range(file: IO[bytes], begin: int, stop: int) -> Iterator[bytes]:
    """Yield a part of a file in pieces of CHUNK bytes. Raises EOFError."""
    while begin < stop:
        file.seek(begin)
        chunk = file.read(min(CHUNK, stop - begin))
        if not chunk:
            raise EOFError(f"it ends after {begin} bytes")
        begin += len(chunk)
        yield chunk
