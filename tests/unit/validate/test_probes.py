"""The probes, on what this machine has and on files made for them."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rdma_images.core.paths import PACKAGE
from rdma_images.inspection import measurements
from rdma_images.validate import image_layers, run_probes
from rdma_images.validate.probes import (
    devices,
    elf,
    libraries,
    loader,
    measure,
    packages,
    pytorch,
    tools,
    tree,
)
from rdma_images.validate.probes.rootfs import Root
from tests.incidents import elf_files


def libc() -> str:
    file = loader.resolve_name("libc.so.6")["file"]
    assert isinstance(file, str)
    return file


def compiled(library: Path, source: str, *options: str | Path) -> str:
    """Compile a library of C, where there is a compiler."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc to make one with")
    file = library.with_suffix(".c")
    file.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, file, *options], check=True)
    return str(library)


def compiled_plugin(folder: Path, text: str) -> str:
    return compiled(folder / "libnccl-net.so", f'const char *ncclNetPlugin_v8(void) {{ return "{text}"; }}\n')


@pytest.mark.parametrize(
    ("words", "version"),
    [
        (["1.2.3.4", "2.4.0amzn1.0", "2.4"], "2.4.0amzn1.0"),
        (["2.1.0"], "2.1.0"),
        (["2.1.0rc2"], "2.1.0rc2"),
        (["2.1.0", "2.4.0"], ""),
        ([], ""),
    ],
)
def test_the_version_that_a_libfabric_says(tmp_path: Path, words: list[str], version: str) -> None:
    path = tmp_path / "libfabric.so.1"
    path.write_bytes(elf_files.library(words=words))
    assert libraries.libfabric_version(str(path)) == version


def test_an_elf_file_says_what_it_is() -> None:
    about = elf.library(libc())
    assert about["soname"] == "libc.so.6"
    assert elf.exported_symbols(libc(), re.compile(rb"printf(?=\0)|nothing")) == ["printf"]
    assert about["machine"] in ("x86_64", "aarch64")
    assert any("Copyright" in word for word in elf.find_strings(libc(), re.compile(rb"Copyright[^\0]{5,20}")))


@pytest.mark.parametrize(
    "content", [b"", b"no ELF", b"\x7fELF\x02\x01" + b"\xff" * 80, b"\x7fELF\x01\x01" + b"\0" * 80, None]
)
def test_what_is_no_whole_library_is_reported(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(Path(libc()).read_bytes()[:5000] if content is None else content)
    with pytest.raises(elf.NotElf):
        elf.library(str(path))


def test_numbers() -> None:
    assert elf.numbers(["ncclNetPlugin_v8", "ncclNetPlugin_v10", "ncclNetPlugin_vx"], "ncclNetPlugin_v") == [8, 10]


def test_the_loader_is_asked() -> None:
    assert loader.resolve_name("libnothing.so.9")["error"].startswith("libnothing.so.9:")
    closure = loader.closure(libc())
    assert not closure["missing"]
    assert loader.library_closure("\tliba.so => not found\n\tlibb.so => /lib/libb.so (0x00007f00)\n", "")[
        "missing"
    ] == ["liba.so"]


def test_a_library_that_lacks_another(tmp_path: Path) -> None:
    source = "int a(void) { return 1; }\n"
    needed = compiled(tmp_path / "libneeded.so", source)
    library = compiled(tmp_path / "libneeds.so", source, "-Wl,--no-as-needed", needed)
    Path(needed).unlink()
    assert loader.closure(library)["missing"] == [needed]
    assert "libneeded" in loader.resolve_name(library)["error"]


@pytest.mark.parametrize(
    ("text", "version"), [("aws-ofi-nccl 1.18.0-aws", "1.18.0"), ("aws-ofi-nccl git-02a874dc", "")]
)
def test_a_plugin_says_its_version(tmp_path: Path, text: str, version: str) -> None:
    about = libraries.plugin_facts(compiled_plugin(tmp_path, f"NET/OFI Initializing {text}\\n"))
    assert (about["version"], about["exports"]) == (version, {"ncclNetPlugin_v": [8]})


def test_a_plugin_that_has_its_words_in_its_data(tmp_path: Path) -> None:
    source = 'char word[] = "NET/OFI Initializing aws-ofi-nccl 1.21.1";\n'
    plugin = compiled(tmp_path / "libnccl-net.so", source, "-nostdlib")
    assert libraries.plugin_facts(plugin)["version"] == "1.21.1"


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        ("Failed to find CUDA Runtime library: %s", ["libcudart.so"]),
        ("libcudart.so", []),
        ("aws-ofi-nccl 1.17.3\\0libcudart.so", ["libcudart.so"]),
        ("aws-ofi-nccl 1.17.3\\0libcudart.so is not asked for", []),
    ],
)
def test_a_plugin_shows_what_it_opens_by_name(tmp_path: Path, text: str, opens: list[str]) -> None:
    assert libraries.plugin_facts(compiled_plugin(tmp_path, text))["opens"] == opens


@pytest.mark.parametrize(("text", "opens"), [("Failed to dlopen libcudart.so", ["libcudart.so"]), ("libcudart.so", [])])
def test_a_libfabric_shows_what_it_opens_by_name(tmp_path: Path, text: str, opens: list[str]) -> None:
    source = f'const char *fi_getinfo(void) {{ return "{text}"; }}\n'
    fabric = compiled(tmp_path / "libfabric.so", source)
    assert libraries.libfabric_opens(fabric) == opens
    assert libraries.libfabric_opens(__file__) == []


def test_nccl_inside_torch_is_found_where_torch_asks_for_no_other(tmp_path: Path) -> None:
    source = 'const char *banner(void) { return "NCCL version 2.10.3+cuda11.3"; }\n'
    torch = compiled(tmp_path / "libtorch_cuda.so", source)
    files = {torch: {"target": "", "condition": ""}}
    assert libraries.nccl_in_torch(Root(), files)[torch]["banner"] == "2.10.3+cuda11.3"
    nccl = compiled(tmp_path / "libnccl.so.2", source, "-Wl,-soname,libnccl.so.2")
    compiled(tmp_path / "libtorch_cuda.so", source, "-Wl,--no-as-needed", nccl)
    assert libraries.nccl_in_torch(Root(), files) == {}


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        ("aws-ofi-nccl 1.21.1", False),
        ("aws-ofi-nccl 1.21.1 Configuring AWS-specific options", True),
        ("aws-ofi-nccl git-02a874dc Configuring AWS-specific options", True),
        ("aws-ofi-nccl git-02a874dc", False),
        ("another plugin Configuring AWS-specific options", None),
    ],
)
def test_a_plugin_shows_its_platform(tmp_path: Path, text: str, platform: bool | None) -> None:
    plugin = compiled_plugin(tmp_path, f"NET/OFI Initializing {text}")
    assert libraries.plugin_facts(plugin)["aws_platform"] is platform


def test_where_libibverbs_looks(tmp_path: Path) -> None:
    words = [
        "lib%s-rdmav34.so",
        "/usr/lib64/libibverbs/lib%s-rdmav34.so",
        "/etc/libibverbs.d",
        "no %s/libibverbs.d here",
    ]
    source = f"const char *words[] = {{{', '.join(json.dumps(word) for word in words)}}};\n"
    assert libraries.verbs_words(compiled(tmp_path / "libibverbs.so", source)) == [
        "-rdmav34.so",
        "/etc/libibverbs.d",
        "/usr/lib64/libibverbs/lib%s-rdmav34.so",
    ]


def test_what_the_efa_installer_leaves_behind(tmp_path: Path) -> None:
    assert packages.efa_installer(Root(str(tmp_path))) == ""
    (tmp_path / "opt/amazon").mkdir(parents=True)
    record = tmp_path / "opt/amazon/efa_installed_packages"
    record.write_text("# EFA installer version: 1.47.0\n# Debug packages installed: no\n# Packages installed:\nefa_1\n")
    assert packages.efa_installer(Root(str(tmp_path))) == "1.47.0"
    record.write_bytes(b"\xff\0")
    assert packages.efa_installer(Root(str(tmp_path))) == ""


def test_a_tree_in_short(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_bytes(b"x" * 10)
    (tmp_path / "libnccl.so").symlink_to("libnccl.so.2")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / ".lock").touch()
    (tmp_path / ".lock").chmod(0o666)
    root = Root(str(tmp_path))
    summary = tree.summary(root.entries())
    assert {Path(p).name: f["target"] for p, f in summary["library_files"].items()} == {
        "libnccl.so.2": "",
        "libnccl.so": "libnccl.so.2",
    }
    assert summary["bytes"] == 10


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/opt/venv/site-packages/nvidia/nccl/lib/libnccl.so.2", "/opt/venv/site-packages/nvidia/nccl"),
        ("/opt/venv/site-packages/torch/lib/a.so", "/opt/venv/site-packages/torch"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu"),
        ("/file", "/"),
    ],
)
def test_places(path: str, expected: str) -> None:
    assert image_layers.counted_folder(path) == expected


@pytest.mark.parametrize(("number", "version"), [(22809, "2.28.9"), (2804, "2.8.4"), (20903, "2.9.3"), (None, "")])
def test_versions_of_nccl(number: int | None, version: str) -> None:
    assert pytorch.decode_version(number) == version


def test_plugin_names_follow_the_environment() -> None:
    names = libraries.candidate_plugin_names(["libnccl-net-ofi.so"], {"NCCL_NET_PLUGIN": "ofi"})
    assert names == ["libnccl-net.so", "ofi", "libnccl-net-ofi.so"]


def test_packages_without_dpkg(tmp_path: Path) -> None:
    folder = tmp_path / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True)
    (folder / "libc6").write_text("Package: libc6\nVersion: 2.41-12\n")
    (tmp_path / "var/lib/dpkg/status").write_text("Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n")
    assert packages.debian_packages(Root(str(tmp_path))) == {"libc6": {"Package": "libc6", "Version": "2.41-12"}}


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_tool_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "fi_info", "sleep 60 & sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(tools, "TOOL_SECONDS", 0.2)
    assert tools.run(["fi_info"])["timed_out"]


def test_a_tool_that_prints_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "ibv_devinfo", r"printf '\377\376\000x'; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    result = tools.run(["ibv_devinfo"])
    assert (result["exit_code"], result["timed_out"]) == (3, False)
    assert result["stdout"].endswith("x")
    assert tools.run(["no-such-tool"])["path"] == ""


def test_only_our_own_train_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may train."""
    script(tmp_path, "train", f"echo usage; touch {tmp_path}/trained")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    result = tools.train()
    assert (result["path"], result["exit_code"]) == (str(tmp_path / "train"), None)
    assert not (tmp_path / "trained").exists()
    monkeypatch.setattr(tools, "TRAIN_FOLDER", str(tmp_path))
    assert tools.train()["stdout"] == "usage\n"


def test_probes_that_hang_crash_or_end_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang() -> None:
        time.sleep(60)

    def crash() -> None:
        raise ValueError("what the image did")

    monkeypatch.setattr(
        measure, "PROBE_FUNCTIONS", {"hang": hang, "crash": crash, "end": lambda: os._exit(3), "fine": lambda: [1]}
    )
    answers = measure.run_probes(["hang"], limit=0.5) | measure.run_probes(["crash", "end", "fine"])
    assert (answers["hang"]["error"], answers["hang"]["stopped"]) == ("stopped after 0.5 s", True)
    assert answers["crash"]["error"].startswith("ValueError: what the image did")
    assert "without an answer" in answers["end"]["error"]
    assert answers["fine"]["value"] == [1]


def test_the_payload_runs_in_a_bare_python() -> None:
    completed = subprocess.run(
        [sys.executable, "-I", "-S", "-c", run_probes.payload(), '{"names": ["system"]}'],
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr
    assert measure.MARK in completed.stdout
    assert len(run_probes.payload()) < 128 * 1024  # bytes that Linux takes as one argument


def test_efa_domains() -> None:
    listing = (
        "provider: efa\n    fabric: efa\n    domain: rdmap79s0-rdm\n    type: FI_EP_RDM\n"
        "provider: efa\n    fabric: efa-direct\n    domain: rdmap79s0-rdm\n    type: FI_EP_RDM\n"
        "provider: efa\n    fabric: efa\n    domain: rdmap79s0-dgrm\n    type: FI_EP_DGRAM\n"
    )
    assert devices.efa_domains(listing) == ["rdmap79s0-rdm"]
    assert devices.efa_domains("") == []


@pytest.mark.parametrize("package", ["nccl_logs", "preflight", "validate/probes"])
def test_what_is_carried_into_images_is_python_of_their_oldest_interpreter(package: str) -> None:
    for path in (PACKAGE / package).glob("*.py"):
        text = path.read_text()
        module = ast.parse(text, feature_version=(3, 8))
        assert "removeprefix" not in text
        assert not generics_at_run_time(module), f"{path.name}: Python 3.8 has these generics in typing alone"


def generics_at_run_time(module: ast.Module) -> list[str]:
    """Return the built-in types and collections.abc's that get parameters outside of annotations, as list[str]."""
    annotations = {
        id(inner)
        for node in ast.walk(module)
        for name in ("annotation", "returns")
        if isinstance(annotation := getattr(node, name, None), ast.AST)
        for inner in ast.walk(annotation)
    }
    imported = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    generics = {"dict", "frozenset", "list", "set", "tuple", "type"} | {
        alias.asname or alias.name for node in imported if node.module == "collections.abc" for alias in node.names
    }
    return [
        ast.unparse(node)
        for node in ast.walk(module)
        if isinstance(node, ast.Subscript) and id(node) not in annotations
        if isinstance(node.value, ast.Name) and node.value.id in generics
    ]


def test_a_probe_declared_is_a_probe_that_runs() -> None:
    assert set(measurements.PROBE_DECLARATIONS) == set(measure.PROBE_FUNCTIONS)
