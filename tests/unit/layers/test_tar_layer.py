"""A tar of any layer gets a table of all its files, and keeps its bytes."""

import base64
import io
import tarfile

import pytest
import zstandard

from rdma_images.layers import blob, seekable_layer, tar_layer
from rdma_images.registry.client import sha256_digest
from tests.support.lazy_reader import LazyReader
from tests.support.tar_members import CAPABILITY, LARGE, LONG, MEMBERS, make_tar, member


def make_layer(tar: bytes) -> tuple[blob.Blob, bytes, LazyReader]:
    out = io.BytesIO()
    layer = tar_layer.write(io.BytesIO(tar), out)
    raw = out.getvalue()
    return layer, raw, LazyReader(layer.size, layer.toc, lambda offset, length: raw[offset:][:length])


@pytest.fixture(scope="module")
def reader() -> LazyReader:
    return make_layer(make_tar(*MEMBERS))[2]


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_the_tar_stays_as_it_is(format: int) -> None:
    tar = make_tar(*MEMBERS, format=format) + bytes(3 * tarfile.RECORDSIZE)
    layer, raw, _ = make_layer(tar)
    with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
        assert stream.read() == tar
    assert [layer.digest, layer.diff_id] == [sha256_digest(raw), sha256_digest(tar)]


def test_the_content_of_files_is_read_by_the_table(reader: LazyReader) -> None:
    for info, content in MEMBERS:
        if info.isreg():
            assert reader.read(info.name) == content
    assert reader.read("usr/lib/large.so.1") == LARGE
    assert [piece["chunkSize"] for piece in reader.pieces("usr/lib/large.so")] == [seekable_layer.PIECE, 1000]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("tmp", {"type": "dir", "mode": 0o1777}),
        ("usr/bin/su", {"type": "reg", "mode": 0o4755, "uid": 3, "gid": 50, "size": 2}),
        ("usr/lib/large.so.1", {"type": "hardlink", "linkName": "usr/lib/large.so"}),
        ("usr/lib/link.so", {"type": "symlink", "linkName": "../lib/large.so", "mode": 0o777}),
        ("dev/null", {"type": "char", "devMajor": 1, "devMinor": 3, "mode": 0o666}),
        ("dev/loop0", {"type": "block", "devMajor": 7, "gid": 6}),
        ("run/pipe", {"type": "fifo", "mode": 0o600}),
        ("etc/.wh.machine-id", {"type": "reg", "modtime": "2023-11-14T22:13:20Z"}),
        ("var/cache/.wh..wh..opq", {"type": "reg"}),
        ("usr/bin/ping", {"modtime": "2023-11-14T22:13:20.123456789Z"}),
        (LONG, {"modtime": "1970-01-01T00:00:00Z"}),
        ("etc/\u00fcber", {"modtime": "1969-12-31T23:59:58.500000000Z"}),
    ],
)
def test_the_table_says_what_a_member_is(reader: LazyReader, name: str, row: dict[str, object]) -> None:
    assert reader.entry(name).items() >= row.items()


def test_extended_attributes_are_in_the_table_as_bytes(reader: LazyReader) -> None:
    attributes = reader.entry("usr/bin/ping")["xattrs"]
    assert {name: base64.b64decode(value) for name, value in attributes.items()} == {
        "security.capability": CAPABILITY,
        "user.note": b"two\nlines",
    }
    assert "xattrs" not in reader.entry("usr/bin/su")


@pytest.mark.parametrize(
    ("tar", "reason"),
    [
        (make_tar((member("a/\udcff"), b"")), "no UTF-8"),
        (make_tar((member("a", tarfile.LNKTYPE, linkname="b"), b"")), "a is a link to b, which is not in it"),
        (make_tar((member("a", content=b"1"), b"1"), (member("a", content=b"2"), b"2")), "a twice"),
        (make_tar((member("a", tarfile.CONTTYPE), b"")), "type '7'"),
        (
            make_tar((member("a", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}), b"")),
            "of the type|cannot be read",
        ),
        (make_tar((member("a"), b""), (member("b"), b""))[:700], "is damaged after 512 bytes"),
        (make_tar((member("a", content=b"1" * 9999), b"1" * 9999))[:4096], "it ends after 4096 bytes|cannot be read"),
        (make_tar((member("a"), b""))[:512] + b"x" * 512 + make_tar((member("b"), b"")), "is damaged after 512 bytes"),
        (b"no tar", "cannot be read"),
    ],
)
def test_a_tar_without_a_true_table_is_refused(tar: bytes, reason: str) -> None:
    with pytest.raises(tar_layer.TarError, match=reason):
        tar_layer.write(io.BytesIO(tar), io.BytesIO())
