"""A layer has an installer's files, the same bytes everywhere; bad wheels are refused."""

import base64
import gzip
import hashlib
import io
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from uv import find_uv_bin

from rdma_images.core.compression import Compression
from rdma_images.core.errors import RdmaImagesError
from rdma_images.layers import blob, make_wheel_layer
from rdma_images.layers.make_wheel_layer import devel_file_matcher
from rdma_images.layers.recipe import devel_patterns
from rdma_images.layers.wheel_members import LayerMember, WheelError, layer_members
from tests.support.layer_wheels import make as wheel

LONG = f"thing/{'a' * 60}/{'b' * 60}.py"
LIBRARY = random.Random(1).randbytes(100_000)
FILES = {
    "thing/__init__.py": b"x = 1\n",
    "thing/lib/one.so": LIBRARY,
    "thing/lib/two.so": LIBRARY,
    "thing/lib/static.a": b"static",
    "thing/bin/run": b"#!/bin/sh\n",
    "thing/\u00fcber.txt": b"\xc3\xbc",
    LONG: b"",
    "thing-1.0.data/scripts/tool": b"#!python\nprint(1)\n",
    "thing-1.0.data/scripts/binary": b"\x7fELF",
    "thing-1.0.data/data/share/man/man1/thing.1": b".TH\n",
    "thing-1.0.dist-info/entry_points.txt": b"[console_scripts]\nthing = thing:main\n",
}
EXECUTABLE = ("thing/bin/run",)


def runtime(wheel_file: Path) -> tuple[LayerMember, ...]:
    return layer_members(wheel_file, wheel_file.stat().st_size, devel_file_matcher(devel_patterns())).runtime


def write_blob(entries: tuple[LayerMember, ...], compression: Compression = "zstd") -> tuple[blob.Blob, bytes]:
    out = io.BytesIO()
    return blob.write(entries, out, compression), out.getvalue()


def unpacked(raw: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
        return stream.read()


def members(raw: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(unpacked(raw))) as archive:
        return {member.name: member for member in archive}


def test_the_same_wheel_is_the_same_bytes_on_every_machine_and_python(tmp_path: Path) -> None:
    entries, raw = write_blob(runtime(wheel(tmp_path, files=FILES, executable=EXECUTABLE)))
    assert entries.size == len(raw)
    assert entries == blob.Blob(
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "sha256:77812a11b8a27750f53a84e537e9d5aab95fe9f7fa54661980823f5fd573ccf3",
        "sha256:df217d2902c08f8a57998a5d946cad3d87e2f9f3a4494dd8d45f75fc7e4e3c4b",
        104328,
        "sha256:48a02ff0c6fb21943453df1d015c31df4c95cb12b11c9c04b9f9379eed5e4c25",
    )


def test_gzip_has_the_same_files_and_a_diff_id_of_its_own(tmp_path: Path) -> None:
    """Of two blobs with one diff id, BuildKit takes the first that it saw for both images."""
    entries = runtime(wheel(tmp_path, files=FILES, executable=EXECUTABLE))
    gzip_blob, raw = write_blob(entries, "gzip")
    zstd_blob, zstd_bytes = write_blob(entries)
    assert gzip_blob.diff_id != zstd_blob.diff_id
    assert gzip.decompress(raw) + bytes(tarfile.BLOCKSIZE) == unpacked(zstd_bytes)


def test_equal_files_are_links_and_all_is_of_one_time_and_owner(tmp_path: Path) -> None:
    _, raw = write_blob(runtime(wheel(tmp_path, files=FILES, executable=EXECUTABLE)))
    files = members(raw)
    site = "opt/venv/site-packages/thing"
    listed = [name for name, member in files.items() if not member.isdir()]
    assert listed == sorted(listed)
    assert files[f"{site}/lib/two.so"].linkname == f"{site}/lib/one.so"
    assert {(member.uid, member.gid, member.uname, member.gname, member.mtime) for member in files.values()} == {
        (0, 0, "", "", 315532800)
    }
    assert files["opt/venv/bin"].isdir()


def test_a_layer_has_the_files_that_uv_installs(tmp_path: Path) -> None:
    wheel_file = wheel(tmp_path / "index", files=FILES, executable=EXECUTABLE)
    layer = tmp_path / "layer" / "opt" / "venv"
    command = [find_uv_bin(), "pip", "install", "--quiet", "--no-config", "--no-index", "--no-deps"]
    command += ["--python", sys.executable, "--prefix", str(layer), str(wheel_file)]
    subprocess.run(command, check=True, env={**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")})
    (site,) = layer.glob("lib/python3.*/site-packages")
    site.rename(layer / "site-packages")
    theirs = {str(path.relative_to(tmp_path / "layer")): path for path in layer.rglob("*") if path.is_file()}
    entries = layer_members(wheel_file, wheel_file.stat().st_size, lambda _: None).runtime
    ours = {entry.path: entry for entry in entries}
    # uv notes where a wheel came from that is no package index's, and locks what it installs into.
    only_uv = {"opt/venv/.lock", *(name for name in theirs if name.endswith(("uv_cache.json", "direct_url.json")))}
    assert ours.keys() == theirs.keys() - only_uv
    assert {name for name, entry in ours.items() if entry.executable} == {
        name for name, path in theirs.items() if os.access(path, os.X_OK) and path.stat().st_mode & 0o100
    }
    assert {name for name, entry in ours.items() if entry.size != theirs[name].stat().st_size} <= {
        # Who installed it, the same program in other words, and their digests; the interpreter is the image's.
        "opt/venv/site-packages/thing-1.0.dist-info/INSTALLER",
        "opt/venv/site-packages/thing-1.0.dist-info/RECORD",
        "opt/venv/bin/thing",
        "opt/venv/bin/tool",
    }


@pytest.mark.filterwarnings("error")
def test_what_only_builds_need_is_apart_and_both_records_tell_the_truth(tmp_path: Path) -> None:
    """Compiled Python, which numpy's wheel for Python 3.11 has, is in neither, and nobody is warned of it."""
    wheel_file = wheel(tmp_path, files={**FILES, "thing/__pycache__/old.cpython-311.pyc": b"x"})
    split = layer_members(wheel_file, wheel_file.stat().st_size, devel_file_matcher(devel_patterns()))
    record = "opt/venv/site-packages/thing-1.0.dist-info/RECORD"
    assert {entry.path for entry in split.devel} == {"opt/venv/site-packages/thing/lib/static.a", record}
    for entries, everything in ((split.runtime, split.runtime), (split.devel, (*split.runtime, *split.devel))):
        (listing,) = (entry.content for entry in entries if entry.path == record)
        listed = {line.split(",")[0] for line in (listing or b"").decode().splitlines()}
        paths_of_part = {entry.path.removeprefix("opt/venv/site-packages/") for entry in everything}
        assert listed == {name.replace("opt/venv/", "../../../") for name in paths_of_part}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (lambda to: wheel(to, files={"../thing.py": b""}), "brings '../thing.py', which leads out of"),
        (lambda to: wheel(to, files={"/etc/passwd": b""}), "brings '/etc/passwd', which leads out of"),
        (lambda to: wheel(to, files={"thing-1.0.data/scripts/../../x": b""}), "/../../x', which leads out of"),
        (
            lambda to: wheel(to, files={"thing-1.0.dist-info/entry_points.txt": b"[console_scripts]\n../a = a:b\n"}),
            "brings '../a', which leads out of",
        ),
        (lambda to: wheel(to, files={"thing-1.0.data/other/x": b""}), "not contained in a valid .data subdirectory"),
        (lambda to: wheel(to, twice="thing/__init__.py"), "brings thing/__init__.py twice"),
        (
            lambda to: wheel(to, files={"thing/x": b"", "thing-1.0.data/purelib/thing/x": b"other"}),
            "brings opt/venv/site-packages/thing/x twice",
        ),
        (lambda to: wheel(to, record={"thing/__init__.py": ""}), "thing/__init__.py is not mentioned in RECORD"),
        (
            lambda to: wheel(to, record={"thing/__init__.py": "thing/__init__.py,sha256=AAAA,6"}),
            "thing/__init__.py is not what its RECORD says",
        ),
        (lambda to: wheel(to, record={"thing/__init__.py": "thing/__init__.py,md5=AAAA,6"}), "has md5 of thing"),
        (lambda to: wheel(to, files={"thing/zeros": bytes(10_000_000)}), "would unpack to 10.0 MB, more than 100"),
    ],
)
def test_a_bad_wheel_is_one_sentence_and_what_to_do(
    tmp_path: Path, wrong: Callable[[Path], Path], expected: str
) -> None:
    wheel_file = wrong(tmp_path)
    with pytest.raises(WheelError) as raised:
        write_blob(runtime(wheel_file))
    first, fix = str(raised.value).splitlines()
    assert first.startswith("thing-1.0-py3-none-any.whl: ")
    assert expected in first
    assert fix == "choose another version of the package, and tell its publishers"


@pytest.mark.parametrize(
    ("part", "sentence"),
    [(slice(size), "") for size in (0, 10, 700, -10)]
    + [(slice(1, None), "its table has thing/.* outside the archive")],
)
def test_a_part_of_a_wheel_is_no_wheel(tmp_path: Path, part: slice, sentence: str) -> None:
    wheel_file = wheel(tmp_path, files=FILES)
    wheel_file.write_bytes(wheel_file.read_bytes()[part])
    with pytest.raises(WheelError, match=rf"^thing-1.0-py3-none-any.whl: .*{sentence}.*\nchoose another version"):
        write_blob(runtime(wheel_file))


def test_a_damaged_file_in_a_wheel_is_found(tmp_path: Path) -> None:
    wheel_file = wheel(tmp_path, files=FILES)
    content = bytearray(wheel_file.read_bytes())
    offset = content.index(b"thing/lib/one.so") + 5_000
    content[offset : offset + 8] = bytes(8)
    wheel_file.write_bytes(content)
    with pytest.raises(WheelError, match=r"thing/lib/one.so (cannot be read|is not what its RECORD says)"):
        write_blob(runtime(wheel_file))


def test_a_wheel_that_was_patched_after_packing_is_taken_with_a_true_record(tmp_path: Path) -> None:
    """As PyNvVideoCodec 2.0.4, whose libraries are not what its RECORD says; pip and uv take it."""
    lines = {f"thing/{name}.so": f"thing/{name}.so,sha256=AAAA,3" for name in ("one", "two")}
    wheel_file = wheel(tmp_path, files={"thing/one.so": b"one", "thing/two.so": b"two"}, record=lines)
    folder = tmp_path / "folder"
    folder.mkdir()
    task = make_wheel_layer.LayerTask(((wheel_file, wheel_file.stat().st_size),), devel_patterns(), "zstd", folder)
    assert make_wheel_layer.make_layer(task) == (wheel_file.name,)
    with tarfile.open(fileobj=io.BytesIO(unpacked((folder / "runtime").read_bytes()))) as archive:
        content = {
            member.name: (archive.extractfile(member) or io.BytesIO()).read() for member in archive if member.isreg()
        }
    site = "opt/venv/site-packages"
    assert [content[f"{site}/thing/{name}.so"] for name in ("one", "two")] == [b"one", b"two"]
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"one").digest()).rstrip(b"=")
    assert b"thing/one.so,sha256=%s,3" % digest in content[f"{site}/thing-1.0.dist-info/RECORD"]


def test_two_wheels_with_one_file_are_both_named(tmp_path: Path) -> None:
    first = wheel(tmp_path, "one", {"shared/x.py": b"1"})
    two = wheel(tmp_path, "two", {"shared/x.py": b"2"})
    with pytest.raises(WheelError, match=r"^one-1.0-\S+ and two-1.0-\S+ both bring \S+/shared/x.py, .*\n.*no-deps"):
        make_wheel_layer.merge_members([runtime(first), runtime(two)])
    same = wheel(tmp_path, "same", {"shared/x.py": b"1"})
    paths = [entry.path for entry in make_wheel_layer.merge_members([runtime(first), runtime(same)])]
    assert paths.count("opt/venv/site-packages/shared/x.py") == 1


def test_two_wheels_may_have_what_nothing_uses(tmp_path: Path) -> None:
    """As torch-c-dlpack-ext and flashinfer-python, which vLLM requires: each brings how it was built."""
    wheels = [wheel(tmp_path, name, {"build_backend.py": name.encode()}) for name in ("one", "two")]
    entries = make_wheel_layer.merge_members(map(runtime, wheels))
    assert [entry.wheel for entry in entries if entry.path.endswith("/build_backend.py")] == wheels[:1]


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    wheel_file = wheel(tmp_path, files=FILES)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "runtime").symlink_to("/dev/full")
    task = make_wheel_layer.LayerTask(((wheel_file, wheel_file.stat().st_size),), devel_patterns(), "zstd", folder)
    with pytest.raises(RdmaImagesError, match=r"No space left on device\nfree disk space$"):
        make_wheel_layer.make_layer(task)
