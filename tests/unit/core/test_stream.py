"""Frames of zstd are read as one file, and what is skipped is not decompressed."""

import io
import random
import struct
import tarfile

import pytest
import zstandard

from rdma_images.core.stream import SKIPPABLE, ZstdFrames

NOISE = random.Random(3).randbytes(3 << 20)
COMPRESSOR = zstandard.ZstdCompressor(level=1)


def frames(*pieces: bytes) -> bytes:
    return b"".join(COMPRESSOR.compress(piece) for piece in pieces)


def without_size(content: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compressobj()
    return compressor.compress(content) + compressor.flush()


PASSED = struct.pack("<2I", SKIPPABLE + 3, 5) + b"table"
FORMS = {
    "one frame": frames(NOISE),
    "its size unknown": without_size(NOISE),
    "several": frames(NOISE[:100], NOISE[100:2000], b"", NOISE[2000:]),
    "with a table": frames(NOISE[:1000]) + PASSED + frames(NOISE[1000:]) + PASSED,
    "mixed": frames(NOISE[:1000]) + without_size(NOISE[1000:2000]) + frames(NOISE[2000:]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("steps", [[], [(0, 10), (5000, 1), (2_000_000, 300)], [(999, 2), (1999, 2)]])
def test_content_is_that_of_all_frames(form: str, steps: list[tuple[int, int]]) -> None:
    file = io.BufferedReader(ZstdFrames(io.BytesIO(FORMS[form])), 4096)
    for offset, size in steps:
        file.seek(offset)
        assert file.read(size) == NOISE[offset : offset + size]
    assert file.read() == NOISE[sum(steps[-1]) if steps else 0 :]
    assert file.read(1) == b""


class CountedBytes(io.BytesIO):
    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def test_a_skipped_frame_is_not_read() -> None:
    blob = CountedBytes(frames(b"head", NOISE, b"tail"))
    file = ZstdFrames(blob)
    assert file.read(4) == b"head"
    file.seek(4 + len(NOISE))
    assert file.read(4) == b"tail"
    assert blob.count < 1000


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (frames(NOISE)[:-50_000], EOFError),
        (frames(NOISE)[:-140_000], EOFError),
        (without_size(b"abc")[:-1], EOFError),
        (frames(b"a") + b"no frame of zstd", zstandard.ZstdError),
        (frames(b"a" * 100)[:-3] + b"\xff\xff\xff", zstandard.ZstdError),
    ],
)
def test_damaged_data_is_an_error(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        ZstdFrames(io.BytesIO(data)).read()


def test_a_tar_that_ends_within_a_skipped_file_is_damaged() -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        entry = tarfile.TarInfo("large")
        entry.size = len(NOISE)
        archive.addfile(entry, io.BytesIO(NOISE))
    cut = plain.getvalue()[: 512 + 1000]
    file = io.BufferedReader(ZstdFrames(io.BytesIO(frames(cut[:512], cut[512:]))))
    with tarfile.open(fileobj=file, mode="r:") as archive, pytest.raises(tarfile.ReadError):
        archive.getmembers()
