"""A layer in zstd: clients that know its table read it in part, others as a whole."""

import io
import random
import subprocess
import tarfile
from dataclasses import dataclass

import pytest
import zstandard

from rdma_images.layers import blob, seekable_layer, wheel_members
from rdma_images.layers.make_wheel_layer import devel_file_matcher
from rdma_images.layers.recipe import devel_patterns
from tests.support import layer_wheels
from tests.support.lazy_reader import FOOTER, DigestMismatchError, LazyReader

SITE = "opt/venv/site-packages"
LARGE = random.Random(2).randbytes(2 * seekable_layer.PIECE + 1000)
EXACT = bytes(seekable_layer.PIECE)
FILES = {
    "thing/__init__.py": b"x = 1\n",
    "thing/a/large.so": LARGE,
    "thing/a/second-name.so": LARGE,
    "thing/b/empty.py": b"",
    "thing/b/exact.so": EXACT,
    "thing/b/middle.py": LARGE[:500].hex().encode(),
    "thing/\u00fcber.txt": b"\xc3\xbc",
    "thing/run": b"#!/bin/sh\n",
}


@dataclass
class WrittenLayer:
    """A layer in zstd: what it is, its bytes, and the files in it."""

    blob: blob.Blob
    raw: bytearray

    def reader(self) -> LazyReader:
        return LazyReader(self.blob.size, self.blob.toc, lambda offset, length: bytes(self.raw[offset:][:length]))

    def tar(self) -> bytes:
        with zstandard.ZstdDecompressor().stream_reader(bytes(self.raw), read_across_frames=True) as stream:
            return stream.read()


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> WrittenLayer:
    wheel = layer_wheels.make(tmp_path_factory.mktemp("wheel"), files=FILES, executable=("thing/run",))
    entries = wheel_members.layer_members(wheel, wheel.stat().st_size, devel_file_matcher(devel_patterns())).runtime
    out = io.BytesIO()
    return WrittenLayer(blob.write(entries, out, "zstd"), bytearray(out.getvalue()))


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_by_the_table_alone(layer: WrittenLayer, name: str) -> None:
    assert layer.reader().read(f"{SITE}/{name}") == FILES[name]


def test_a_small_file_costs_its_own_bytes_and_the_table(layer: WrittenLayer) -> None:
    reader = layer.reader()
    reader.read(f"{SITE}/thing/b/middle.py")
    assert reader.fetched < 10_000


def test_of_a_large_file_only_the_pieces_that_are_read_are_fetched(layer: WrittenLayer) -> None:
    reader = layer.reader()
    begin = seekable_layer.PIECE + 17
    assert reader.read(f"{SITE}/thing/a/large.so", begin, 1000) == LARGE[begin : begin + 1000]
    assert seekable_layer.PIECE < reader.fetched < seekable_layer.PIECE + 20_000
    sizes = [piece["chunkSize"] for piece in reader.pieces(f"{SITE}/thing/a/large.so")]
    assert sizes == [seekable_layer.PIECE, seekable_layer.PIECE, 1000]


@pytest.mark.parametrize("name", ["thing/a/large.so", "thing/b/middle.py"])
def test_a_damaged_piece_is_never_taken_for_the_file(layer: WrittenLayer, name: str) -> None:
    piece = layer.reader().pieces(f"{SITE}/{name}")[-1]
    for distance in range(0, 40, 3):
        damaged = WrittenLayer(layer.blob, bytearray(layer.raw))
        damaged.raw[piece["offset"] + distance] ^= 1
        reader = damaged.reader()
        with pytest.raises(DigestMismatchError):
            reader.read(f"{SITE}/{name}")
        assert reader.read(f"{SITE}/thing/run") == FILES["thing/run"]


def test_another_table_is_not_taken(layer: WrittenLayer) -> None:
    changed = WrittenLayer(layer.blob, bytearray(layer.raw))
    offset, size, *_ = FOOTER.unpack(changed.raw[-FOOTER.size :])
    table = zstandard.ZstdDecompressor().decompress(bytes(changed.raw[offset : offset + size]))
    forged = zstandard.ZstdCompressor().compress(table.replace(b"middle.py", b"muddle.py"))
    changed.raw[offset : offset + size] = forged
    footer = FOOTER.pack(offset, len(forged), len(table), seekable_layer.TABLE_KIND, seekable_layer.MAGIC)
    changed.raw[-FOOTER.size :] = footer
    changed.blob = blob.Blob("", "", "", len(changed.raw), layer.blob.toc)
    with pytest.raises(DigestMismatchError):
        changed.reader()


def test_the_table_lists_the_members_of_the_tar(layer: WrittenLayer) -> None:
    names = {tarfile.DIRTYPE: "dir", tarfile.REGTYPE: "reg", tarfile.LNKTYPE: "hardlink"}
    with tarfile.open(fileobj=io.BytesIO(layer.tar())) as archive:
        members = [(member.name, names[member.type], member.mode, member.size, member.linkname) for member in archive]
    landmark, *rows = [row for row in layer.reader().entries if row["type"] != "chunk"]
    assert landmark == seekable_layer.NO_PREFETCH
    fields = [(row["name"], row["type"], row["mode"], row.get("size", 0), row.get("linkName", "")) for row in rows]
    assert fields == members
    assert {row["modtime"] for row in rows} == {"1980-01-01T00:00:00Z"}


def test_no_two_pieces_begin_at_one_offset(layer: WrittenLayer) -> None:
    """The snapshotter finds a piece's digest by its offset, and refuses a repeated one."""
    offsets = [row["offset"] for row in layer.reader().entries if "offset" in row]
    assert offsets == sorted(set(offsets))
    assert offsets[0] > 0


def test_zstd_s_own_program_reads_the_layer_as_any_other(layer: WrittenLayer) -> None:
    completed = subprocess.run(
        ["zstd", "--decompress", "--stdout"], input=bytes(layer.raw), capture_output=True, check=True
    )
    assert completed.stdout == layer.tar()
