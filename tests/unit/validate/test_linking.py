"""What an ELF file asks of others and why it cannot be mapped, read here, held against the real loader's answer."""

import os
import platform
import shutil
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from rdma_images.validate import linking
from rdma_images.validate.ldcache import ComputedLoader
from rdma_images.validate.probes import conditions, libraries, loader, tree
from rdma_images.validate.probes.rootfs import Root

OLD, NEW = "EFA_1.0 { global: efa_a; local: *; };", "EFA_1.4 { global: efa_b; } EFA_1.0;"


def compiled(folder: Path, name: str, code: str, *options: str) -> Path:
    """Return a shared library of C code."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc to make one with")
    source, library = folder / f"{name}.c", folder / name
    source.write_text(code)
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library), *options], check=True)
    return library


def versioned(folder: Path, versions: str) -> Path:
    """Return a libefax.so.1 with these symbol versions."""
    (folder / "versions").write_text(versions)
    code = "int efa_a(void) { return 1; } int efa_b(void) { return 2; }"
    return compiled(folder, "libefax.so.1", code, "-Wl,-soname,libefax.so.1", f"-Wl,--version-script={folder}/versions")


def linkings(*files: Path) -> dict[str, linking.Linking]:
    """Return what libraries ask and offer, by path."""
    return {str(file): about for file in files if (about := linking.read_linking(str(file)))}


def computed_answers(path: Path, **files_by_name: Path) -> list[str]:
    """Return the faults of a library, computed from files."""
    names = {name.replace("_", "."): str(file) for name, file in files_by_name.items()}
    return linking.faults(str(path), names, linkings(path, *files_by_name.values()))


def test_a_version_that_is_not_there_is_reported_as_the_loader_does(tmp_path: Path) -> None:
    new = versioned(tmp_path, f"{OLD} {NEW}")
    code = "int efa_b(void); int net(void) { return efa_b(); }"
    plugin = compiled(tmp_path, "libnet.so", code, str(new), f"-Wl,-rpath,{tmp_path}")
    assert loader.closure(str(plugin))["faults"] == computed_answers(plugin, libefax_so_1=new) == []
    assert loader.resolved(str(plugin)) == {"path": str(plugin), "file": str(plugin), "error": ""}
    old = versioned(tmp_path, OLD)
    fault = f"{old}: version `EFA_1.4' not found (required by {plugin})"
    assert computed_answers(plugin, libefax_so_1=old) == [fault]
    faults = loader.closure(str(plugin))["faults"]
    assert any(fault in line for line in faults)
    refused = loader.resolved(str(plugin))
    assert (refused["file"], refused["error"]) == (str(plugin), fault)


def test_a_symbol_that_nobody_defines_is_reported_as_the_loader_does(tmp_path: Path) -> None:
    efa = versioned(tmp_path, f"{OLD} {NEW}")
    code = "int efa_a(void); int gone(void); __attribute__((weak)) int may(void);"
    code += "int net(void) { return efa_a() + gone() + (may ? may() : 0); }"
    plugin = compiled(
        tmp_path, "libnet.so", code, str(efa), f"-Wl,-rpath,{tmp_path}", "-Wl,--unresolved-symbols=ignore-all"
    )
    fault = f"undefined symbol: gone ({plugin})"
    assert loader.closure(str(plugin))["faults"] == computed_answers(plugin, libefax_so_1=efa) == [fault]
    assert not loader.closure(str(plugin), bound=False)["faults"]
    assert "undefined symbol: gone" in loader.resolved(str(plugin))["error"]


def test_symbols_are_not_looked_for_where_a_library_is_missing_or_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    efa = versioned(tmp_path, f"{OLD} {NEW}")
    plugin = compiled(tmp_path, "libnet.so", "int efa_a(void); int net(void) { return efa_a(); }", str(efa))
    with monkeypatch.context() as changed:
        changed.setattr(linking, "MAX_BYTES", 1)
        assert not computed_answers(plugin)
    assert computed_answers(plugin) == [f"undefined symbol: efa_a ({plugin})"]
    efa.unlink()
    assert loader.closure(str(plugin))["missing"] == [efa.name]
    assert not loader.closure(str(plugin))["faults"]


def test_of_a_large_library_the_symbols_of_nccl_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nccl = compiled(tmp_path, "libnccl.so.2", "int ncclAllReduce(void) { return 0; }")
    code = "int ncclAllReduce(void); int ncclDevCommDestroy(void); int gone(void);"
    code += "int f(void) { return ncclAllReduce() + ncclDevCommDestroy() + gone(); }"
    torch = compiled(tmp_path, "libtorch_cuda.so", code, str(nccl), "-Wl,--unresolved-symbols=ignore-all")
    faults = [f"undefined symbol: {name} ({torch})" for name in ("gone", "ncclDevCommDestroy")]
    assert computed_answers(torch, libnccl_so_2=nccl) == faults
    monkeypatch.setattr(linking, "MAX_BYTES", 1)
    assert computed_answers(torch, libnccl_so_2=nccl) == faults[1:]
    assert linking.faults(str(torch), {"libnccl.so.2": str(nccl)}, linkings(torch)) == []


def test_what_is_preloaded_is_taken_for_its_soname(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("own", "first"):
        (tmp_path / folder).mkdir()
    second, first = (
        compiled(tmp_path / folder, name, "int a(void) { return 0; }", "-Wl,-soname,libown.so.2")
        for folder, name in (("own", "libown.so.2"), ("first", "libfirst.so"))
    )
    code, origin = "int a(void); int b(void) { return a(); }", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/own"
    asker = compiled(tmp_path, "libasks.so", code, str(second), origin)
    root = Root()
    assert ComputedLoader(root, {}, platform.machine()).closure(str(asker))["libraries"]["libown.so.2"] == str(second)
    assert loader.closure(str(asker))["libraries"]["libown.so.2"] == str(second)
    monkeypatch.setenv("LD_PRELOAD", str(first))
    closure = loader.closure(str(asker))["libraries"]
    assert str(second) not in closure.values()
    assert str(first) in closure.values()
    computed = ComputedLoader(root, {"LD_PRELOAD": str(first)}, platform.machine())
    assert computed.closure(str(asker))["libraries"]["libown.so.2"] == str(first)


def header(machine: int = 62, size: int = 2, order: int = 1, kind: int = 3, table: int = 0) -> bytes:
    """Return the header of an ELF file."""
    form = "<" if order == 1 else ">"
    identity = b"\x7fELF" + bytes([size, order, 1]).ljust(12, b"\0")
    return identity + struct.pack(f"{form}HHIQQQIHHHHHH", kind, machine, 1, 0, 0, table, 0, 64, 0, 0, 64, 1, 0)


@pytest.mark.parametrize(
    ("loader_output", "faults"),
    [
        ("bash: /opt/conda/lib/libtinfo.so.6: no version information available (required by bash)", 0),
        ("ERROR: ld.so: object 'libgone.so' from LD_PRELOAD cannot be preloaded: ignored.", 0),
        ("libx.so: /lib/libc.so.6: weak version `GLIBC_9' not found (required by libx.so)", 0),
        ("Error loading shared library libgone.so: No such file or directory (needed by libx.so)", 0),
        ("Error relocating libx.so: gone: symbol not found", 1),
        ("libx.so: /lib/libc.so.6: version `GLIBC_9' not found (required by libx.so)", 1),
    ],
)
def test_words_of_the_loader_that_refuse_nothing(loader_output: str, faults: int) -> None:
    assert len(loader.library_closure("", loader_output)["faults"]) == faults


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123\n"
CONTENTS = [
    (header(), ""),
    (b"", "empty"),
    (POINTER, "lfs-pointer"),
    (b"/* GNU ld script */\nGROUP ( libfabric.so.1 )\n", "text"),
    (b"<!DOCTYPE html><title>404</title>", "text"),
    (b"\x1f\x8b\x08\0\0\0\0\0" * 9, "no-elf"),
    (header()[:40], "cut"),
    (header(table=4096), "cut"),
    (header(size=1), "32-bit"),
    (header(machine=21, order=2), "big-endian"),
    (header(machine=183), "machine aarch64"),
    (header(machine=243), "machine ELF machine 243"),
    (header(kind=1), "no-library"),
]


@pytest.mark.parametrize(("content", "condition"), CONTENTS, ids=[condition or "whole" for _, condition in CONTENTS])
def test_what_is_no_library_of_this_machine(tmp_path: Path, content: bytes, condition: str) -> None:
    file = tmp_path / "libnccl-net.so"
    file.write_bytes(content)
    assert conditions.path_condition(Root(), str(file), "x86_64") == condition
    assert conditions.condition_kind(condition) in (*conditions.CONDITIONS, "")
    (tmp_path / "link.so").symlink_to(file.name)
    assert conditions.path_condition(Root(), str(tmp_path / "link.so"), "x86_64") == condition


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("dangling", "loop", "fifo", "folder", "device", "socket"):
            assert conditions.path_condition(Root(), str(tmp_path / name), "x86_64") == name


def test_the_real_loader_skips_what_is_for_another_machine(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    compiled(good, "libx.so", "int x(void) { return 1; }")
    for number, (content, condition) in enumerate(CONTENTS[1:]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "libx.so").write_bytes(content)
        asking = {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{good}"}
        command = ["python3", "-S", "-c", "import ctypes; ctypes.CDLL('libx.so')"]
        opened = subprocess.run(command, env=asking, capture_output=True, check=False).returncode == 0
        assert opened == (conditions.condition_kind(condition) in conditions.SKIPPED), condition


def test_a_pipe_in_place_of_a_library_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libfabric.so.1")
    files = {str(tmp_path / "libfabric.so.1"): {"target": "", "condition": "fifo"}}
    loader_of_files = libraries.ImageLoader(files)
    assert "no file" in loader_of_files.resolved("libfabric.so.1")["error"]
    assert "not asked" in loader_of_files.closure("/bin/sh")["error"]


def test_a_loader_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []

    def late(name: str, requiring_file: str | None) -> dict[str, str]:
        requests.append(requiring_file or name)
        return {"path": "", "file": "", "error": loader.LATE_ANSWER}

    monkeypatch.setattr(loader, "resolved", late)
    loaders = libraries.ImageLoader({})
    assert loaders.resolved("libefa.so.1")["error"] == loader.LATE_ANSWER
    assert loaders.resolved("libfabric.so.1")["error"] == f"not asked: libefa.so.1: {loader.LATE_ANSWER}"
    assert loaders.closure("/x")["error"] == f"not asked: libefa.so.1: {loader.LATE_ANSWER}"
    assert requests == ["libefa.so.1"]


def test_a_plugin_that_the_real_loader_refuses_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = versioned(tmp_path, f"{OLD} {NEW}")
    code = "int efa_b(void); int net(void) { return efa_b(); }"
    plugin = compiled(tmp_path, "libnccl-net.so", code, str(old), f"-Wl,-rpath,{tmp_path}")
    versioned(tmp_path, OLD)
    (tmp_path / "libnccl-tuner.so").symlink_to("gone.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    root = Root()
    summary = tree.summary(Root(str(tmp_path)).entries(), root)["libraries"]
    tree_libraries = {f"{tmp_path}{path}": about for path, about in summary.items()}
    about = libraries.fabric_libraries(root, tree_libraries, os.environ, libraries.ImageLoader(tree_libraries))
    fault = f"{old}: version `EFA_1.4' not found (required by {plugin})"
    assert about["resolved"]["libnccl-net.so"] == {"path": str(plugin), "file": str(plugin), "error": fault}
    assert fault in about["closures"][str(plugin)]["faults"][0]
    assert tree_libraries[str(tmp_path / "libnccl-tuner.so")]["condition"] == "dangling"
