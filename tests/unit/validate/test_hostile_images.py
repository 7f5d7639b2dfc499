"""What an image could do to whoever validates it: nothing of it crashes, fills the memory or looks green."""

import io
import json
import re
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

import pytest
import zstandard

from rdma_images.core import progress, stream
from rdma_images.core.errors import RdmaImagesError
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Measured
from rdma_images.report import junit
from rdma_images.validate import image_layers, probe_files, run_probes, suite, transport
from rdma_images.validate.probes import elf, libraries, loader, measure, packages, tools
from rdma_images.validate.probes.rootfs import Root
from rdma_images.validate.run_probes import mark_failed, parse_answers
from rdma_images.validate.validator import Requirement, UnmetError
from tests.support import validators_called
from validators.any import test_measured as any_measured

CASE = Path(__file__).parents[2] / "data" / "cases" / "efa-pytorch.json"
LATIN = "/opt/caf\udce9"  # a path with a byte that is no UTF-8, as Python has it


def case(**changes: object) -> Inspection:
    data = json.loads(CASE.read_text())
    data["measured"].update(changes)
    return Inspection.model_validate(data)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[" * 200_000,
        b"5",
        b'{"tree": 5}',
        b'{"tree": {"seconds": "x"}}',
        b'{"tree": {"value": {}, "seconds": 1e999}}',
        b'{"tree": {"value": "\\udce9"}}',
        b'{"tree": {"value": {"files": {"count": -1}}}}',
        b"\xff\xfe",
    ],
)
def test_any_answer_is_taken(text: bytes) -> None:
    assert parse_answers(text, ("tree",)).failed == ("tree",)


def test_answers_that_nobody_asked_for_are_left_out() -> None:
    text = b'{"evil": {"value": 1}, "missing": {"value": {"tree": "none"}}, "failed": {"value": []}}'
    inspection = parse_answers(text, ())
    assert (inspection.missing, inspection.failed) == ({}, ())


def test_numbers_that_no_report_could_show_are_lost() -> None:
    data = json.loads(CASE.read_text())["measured"]
    for key, value in (("bytes", 10**400), ("count", -1)):
        files = {**data["tree"]["files"], key: value}
        text = json.dumps({"tree": {"value": {**data["tree"], "files": files}}}).encode()
        assert parse_answers(text, ("tree",)).failed == ("tree",)


def python(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, *, limit: float = 10, silence: float | None = None
) -> Measured:
    """Return what is measured where the only Python is the shell script `text`."""
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setattr(run_probes, "PYTHONS", (str(program),))
    return run_probes.probe(transport.host("local://", limit, silence=silence), ("tree", "torch"))


def test_a_python_that_does_not_start_costs_no_more_than_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = python(tmp_path, monkeypatch, "sleep 30", silence=0.3)
    assert inspection.missing["tree"] == f"tree was stopped: {tmp_path}/python3 did not start"
    assert inspection.timed_out == ("tree", "torch")
    late = python(tmp_path, monkeypatch, "echo started; sleep 30", limit=2.5, silence=2.0)
    assert late.missing["tree"] == f"tree was stopped: {tmp_path}/python3 did not answer"


def test_who_measures_says_how_long_a_probe_may_take() -> None:
    inspection = run_probes.probe(transport.host("local://", 60), ("tree",), limit=0.1)
    assert inspection.missing["tree"] == "tree was stopped after 0.1 s"
    assert (inspection.timed_out, inspection.failed) == (("tree",), ())


def test_a_variable_that_steers_python_is_named() -> None:
    measured = {"failed": ["tree"], "missing": {"tree": "python3 ended with 1"}}
    damaged_case = case(**measured)
    subject = damaged_case.subject.model_copy(update={"environment": {"PYTHONHOME": "/opt/gone"}})
    with pytest.raises(UnmetError, match=r"PYTHONHOME=/opt/gone is set") as failed:
        any_measured.test_complete(damaged_case.model_copy(update={"subject": subject}), Requirement())
    assert "fix: leave PYTHONHOME out of the image" in str(failed.value)
    any_measured.test_complete(case().model_copy(update={"subject": subject}), Requirement())


def test_who_waits_is_told_for_what() -> None:
    lines: SimpleQueue[str] = SimpleQueue()
    before = set(threading.enumerate())
    with progress.report_waiting(lines.put, lambda: "the layers", interval=0.05):
        spoken = [lines.get(timeout=60), lines.get(timeout=60)]
    assert spoken[0].startswith("waiting for the layers, ")
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("expected", ["", "[[[", '{"tree": 5}', '{"tree": null}\\n{}'])
def test_a_python_that_lies_has_measured_nothing(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspection = python(tmp_path, monkeypatch, f"printf '{measure.MARK}{expected}'")
    assert set(inspection.failed) == {"tree", "torch"}


def test_a_python_that_fails_is_not_an_image_without_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = python(tmp_path, monkeypatch, "echo broken >&2; exit 7")
    assert "ended with 7: broken" in inspection.missing["tree"]
    with pytest.raises(run_probes.NoPythonError, match="the image has no Python to run the probes"):
        python(tmp_path, monkeypatch, "exit 127")


def test_names_that_are_no_text_reach_the_validators(tmp_path: Path) -> None:
    data = json.loads(CASE.read_text())["measured"]["tree"]
    files = {**data["files"], "library_files": {LATIN: {"size": 1}}}
    inspection = parse_answers(measure.as_json({"tree": {"value": {**data, "files": files}}}), ("tree",))
    assert inspection.tree
    assert list(inspection.tree.files.library_files) == ["/opt/caf?"]
    (blob := tmp_path / "blob").write_bytes(archive((f"{LATIN[1:]}/.netrc", b"x"), ("\x1b[2J/.netrc", b"x")))
    layer = image_layers.read_layer("sha256:1", blob)
    checks = suite.run(case(layers=[layer.model_dump()]))
    assert [c.actual for c in checks if c.outcome == "failed"] == [
        "programs keep logins in /opt/caf\N{REPLACEMENT CHARACTER}/.netrc, /\\x1b[2J/.netrc, "
        "which everybody who pulls the image can read"
    ]
    ElementTree.fromstring(junit.junit_xml(checks))


def test_what_was_lost_is_reported_once() -> None:
    probes = ("tree", "packages", "tools", "system", "layers")
    reason = "took more than 90 s and was stopped"
    inspection = case(**dict.fromkeys(probes), missing=dict.fromkeys(probes, reason), failed=probes)
    checks = validators_called.checks_by_id(inspection).values()
    (failed,) = [c for c in checks if c.outcome == "failed"]
    assert (failed.id, failed.severity) == ("measured.complete", "error")
    assert failed.actual == "; ".join(f"{name}: {reason}" for name in probes)
    reasons = {c.id: c.reason for c in checks if c.outcome == "skipped"}
    assert reasons["layers.secrets"] == "layers could not be measured: see measured.complete"
    assert reasons["nccl.wheels"] == "packages could not be measured: see measured.complete"
    assert reasons["nccl.found"] == "tree could not be measured: see measured.complete"


def test_devices_that_were_lost_are_reported_in_their_tier() -> None:
    inspection = case(devices=None, missing={"devices": "OSError"}, failed=["devices"])
    checks = validators_called.checks_by_id(inspection, "device").values()
    assert [(c.id, c.tier) for c in checks if c.outcome == "failed"] == [("measured.complete", "device")]


def test_a_torch_that_cannot_be_imported_is_reported_by_its_own_check() -> None:
    measured = {"torch": None, "missing": {"torch": "ImportError: no"}, "failed": ["torch"]}
    any_measured.test_complete(case(**measured), Requirement())
    with pytest.raises(UnmetError, match="torch: ImportError: no"):
        any_measured.test_complete(case(**measured, packages=None), Requirement())


def crafted(names: int, length: int) -> bytes:
    """Return a library whose `names` symbols all lead into one text of `length` bytes."""
    strings = b"\0" + b"n" * length + b"\0"
    symbols = b"".join(struct.pack("<IBBHQQ", 1 + i, 0, 0, 1, 0, 0) for i in range(names))
    dynamic = struct.pack("<QQQQ", 14, 1, 0, 0)
    sections = b".dynstr\0.dynsym\0.dynamic\0"
    parts, offsets = [strings, symbols, dynamic, sections], [64]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    rows = [(0, 0, 0, 0, 0), (0, 3, offsets[0], len(strings), 0), (8, elf.SHT_DYNSYM, offsets[1], len(symbols), 1)]
    rows += [(16, elf.SHT_DYNAMIC, offsets[2], len(dynamic), 1), (0, 3, offsets[3], len(sections), 0)]
    table = b"".join(struct.pack("<IIQQQQIIQQ", n, k, 0, 0, o, s, link, 0, 0, 0) for n, k, o, s, link in rows)
    head = b"\x7fELF\x02\x01" + b"\0" * 12 + struct.pack("<H", 62) + b"\0" * 20 + struct.pack("<Q", offsets[4])
    return head + b"\0" * 10 + struct.pack("<HHH", 64, len(rows), 4) + b"".join(parts) + table


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))
sys.path.insert(0, sys.argv[2])
from rdma_images.validate.probes import libraries
print(libraries.nccl_facts(sys.argv[1]), libraries.plugin_facts(sys.argv[1]))
"""


def test_a_small_library_does_not_take_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(crafted(4000, 1 << 20))
    root = str(Path(libraries.__file__).parents[2])
    completed = subprocess.run([sys.executable, "-c", LIMITED, path, root], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    path.write_bytes(crafted(4, 8))
    assert elf.library(str(path))["soname"] == "n" * 8


def test_symbols_and_words_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "MAX_SYMBOLS", 3)
    path = tmp_path / "lib.so"
    path.write_bytes(crafted(4, 8))
    with pytest.raises(elf.NotElf):
        elf.exported_symbols(str(path), libraries.EXPORTED)
    monkeypatch.setattr(elf, "MAX_WORDS", 3)
    with pytest.raises(elf.NotElf):
        elf.find_strings(loader.resolve_name("libc.so.6")["file"], re.compile(rb"[a-z]{3}"))


def test_a_tool_that_prints_without_end_takes_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print_much = "import sys\nfor _ in range(300): sys.stdout.write('x' * (1 << 20)); sys.stderr.write('y' * 1000)"
    rc, out, err = tools.run_bounded([sys.executable, "-c", print_much], 60, 20000)
    assert (rc, len(out), len(err)) == (0, 20000, 20000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_tool_whose_child_keeps_its_output_open_is_stopped() -> None:
    rc, out, _ = tools.run_bounded(["sh", "-c", "echo here; setsid sleep 30 & exit 0"], 3, 100)
    assert (rc, out) == (None, b"here\n")


def test_a_wheel_without_a_version_leaves_the_others(tmp_path: Path) -> None:
    site = tmp_path / "opt/venv/lib/python3.13/site-packages"
    for folder, record in (
        ("nvidia_nccl_cu13-2.30.7.dist-info", b"Metadata-Version: 2.1\nName: nvidia-nccl-cu13\n\nVersion: 9\n"),
        ("torch-2.15.0.dist-info", b"Metadata-Version: 2.1\nName: Torch\nVersion: 2.15.0+cu132\nAuthor: Ren\xe9\n"),
        ("odd-1.dist-info", b""),
    ):
        (site / folder).mkdir(parents=True)
        (site / folder / "METADATA").write_bytes(record)
    root = Root(str(tmp_path))
    (versions,) = packages.wheels(root, packages.import_folders(root, {})).values()
    assert versions == {"nvidia-nccl-cu13": "2.30.7", "torch": "2.15.0+cu132", "odd": "1"}


def archive(*files: tuple[str, bytes]) -> bytes:
    """Return a tar, as an engine exports it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o666
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def pieces(data: bytes) -> Iterator[bytes]:
    return (data[start : start + 4096] for start in range(0, len(data), 4096))


def test_files_are_read_out_whatever_their_names() -> None:
    status = b"Package: libc6\nVersion: 2.41\nStatus: install ok installed\n"
    files = [("var/lib/dpkg/status", status), (LATIN[1:], b"x"), ("lib/libnccl.so.2", crafted(9, 1 << 20))]
    files += [("lib/libbroken.so", b"\x7fELF\x02\x01" + b"\xff" * 99), ("opt/" + "\udce9" * 255, b"BEGIN")]
    inspection = probe_files.measure_export(pieces(archive(*files)), case().subject)
    assert inspection.failed == ()
    assert inspection.tree
    assert inspection.packages
    assert inspection.packages.dpkg == {"libc6": "2.41"}


def test_a_name_with_a_null_byte_is_not_there(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    assert root.text("/usr/share/doc/a\x00b/copyright", 10) is None
    assert root.names("/a\x00b") == []


def test_a_name_does_not_lead_out_of_the_image(tmp_path: Path) -> None:
    beside = tmp_path / "x.dist-info" / "METADATA"
    inspection = probe_files.measure_export(
        pieces(archive((f"{'../' * 20}{beside}".replace("//", "/"), b"x"))), case().subject
    )
    assert set(inspection.failed) == {"packages", "settings", "system", "tree"}
    assert "leads out of the tree" in inspection.missing["tree"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [0, 700, 5000])
def test_an_export_that_is_cut_is_lost(cut: int) -> None:
    data = archive(("a", b"x" * 3000), ("b", b"y" * 3000))[:cut]
    inspection = probe_files.measure_export(pieces(data), case().subject)
    assert set(inspection.failed) == {"packages", "settings", "system", "tree"}
    assert "the image's files could not be read" in inspection.missing["tree"]


def test_reading_out_has_a_limit_of_memory() -> None:
    links = archive(*((f"{number}{'m' * 200}.so", b"") for number in range(100)))
    export = probe_files.measure_export(pieces(links), case().subject)
    assert export.tree
    assert export.tree.files.count == 100
    inspection = probe_files.measure_export(pieces(links), case().subject, memory=1 << 20)
    assert set(inspection.failed) == {"packages", "settings", "system", "tree"}


def test_an_engine_that_stops_is_no_fault_of_the_image() -> None:
    def broken() -> Iterator[bytes]:
        yield archive(("a", b"x"))[:512]
        raise ConnectionError("gone")

    with pytest.raises(RdmaImagesError, match="stopped handing out"):
        probe_files.measure_export(broken(), case().subject)


def test_a_tar_that_hides_its_rest_is_damaged() -> None:
    data = archive(("a", b"x"))
    hidden = data + archive(("root/.netrc", b"machine x login y password z"))
    for blob, fine in ((data, True), (hidden, False)):
        with tarfile.open(fileobj=io.BytesIO(blob), mode="r|") as opened:
            if fine:
                assert [m.name for m in stream.members(opened)] == ["a"]
                continue
            with pytest.raises(tarfile.ReadError, match="more follows its end"):
                list(stream.members(opened))


def test_a_size_below_zero_does_not_lead_back(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("a")
    entry.size = -1024
    file = tmp_path / "blob"
    for blob in (entry.tobuf(tarfile.GNU_FORMAT), zstandard.ZstdCompressor().compress(entry.tobuf(tarfile.GNU_FORMAT))):
        file.write_bytes(blob + bytes(1024))
        with pytest.raises(tarfile.ReadError, match="'a' has the size -1024"):
            image_layers.read_layer("sha256:1", file)


def test_a_layer_is_read_whatever_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = ("root/.netrc", b"machine x login y password z")
    monkeypatch.setattr(image_layers, "MAX_CATEGORIES", 2)
    file = tmp_path / "blob"
    file.write_bytes(archive(secret, (LATIN[1:] + "/large", b"x" * 100_000), ("srv/a/b", b"12345")))
    layer = image_layers.read_layer("sha256:1", file)
    assert layer.largest_folder == "/opt/caf\N{REPLACEMENT CHARACTER}"
    assert (layer.file_count, layer.unpacked) == (3, 100_028 + 5)
    assert set(layer.leftovers.secret) == {"/root/.netrc"}


def test_volumes_belong_to_the_tree(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to walk")
    folder = shared / f"rdma-images-{tmp_path.name}"
    folder.mkdir()
    try:
        (folder / "libnccl.so.2").touch()
        paths = {entry.path for entry in Root("/dev").entries(("/shm",))}
        assert f"/shm/{folder.name}/libnccl.so.2" not in {entry.path for entry in Root("/dev").entries()}
        assert f"/shm/{folder.name}/libnccl.so.2" in paths
    finally:
        shutil.rmtree(folder)


def test_a_lost_measurement_says_why() -> None:
    inspection = mark_failed(("tree",), "why", mark_failed(("torch",), "before"))
    assert (inspection.missing, inspection.failed) == ({"torch": "before", "tree": "why"}, ("torch", "tree"))
