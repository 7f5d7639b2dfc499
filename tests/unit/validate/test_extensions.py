"""Extension modules are loaded with all symbols bound, in a process that one of them may end."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.validate.probes import elf, extensions


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what stands for the modules that were found: two real libraries, and one that is not there."""
    (tmp_path / "broken.so").write_bytes(b"\x7fELF")
    module_paths = ["libc.so.6", str(tmp_path / "broken.so"), "libm.so.6"]
    monkeypatch.setattr(extensions, "extensions", lambda: iter(module_paths))
    return module_paths


def test_each_is_loaded_and_a_fault_is_in_the_loaders_words(paths: list[str]) -> None:
    faults = extensions.loaded_extensions()
    assert list(faults) == paths
    assert (faults["libc.so.6"], faults["libm.so.6"]) == ("", "")
    assert "broken.so: " in faults[paths[1]]


@pytest.mark.parametrize(("device", "fault"), [("/dev/null", "the process ended while it was loaded"), ("/absent", "")])
def test_one_that_ends_the_process_hides_no_other(
    paths: list[str], monkeypatch: pytest.MonkeyPatch, device: str, fault: str
) -> None:
    """Without a GPU that is no fault: Mooncake's module ends its process there."""
    real = extensions._fault

    def ends(path: str, *mode: int) -> str:
        return os._exit(9) if path == paths[1] else real(path, *mode)

    monkeypatch.setattr(extensions, "_fault", ends)
    monkeypatch.setattr(extensions, "GPU", device)
    assert extensions.loaded_extensions() == {
        paths[0]: "",
        paths[1]: fault,
        paths[2]: "",
    }


TRIED = "try:\n    torch.ops.load_library(file)\nexcept Exception: pass"


@pytest.mark.parametrize(
    ("code", "package", "is_optional"),
    [
        ("int f;", TRIED, True),
        ("int f;", "from its_package import extension", False),
        ("int f;", "torch.ops.load_library(file)", False),
        ("int f;", "try:", False),
        ("int PyInit_ops(void) { return 1; }", TRIED, False),
    ],
    ids=["torchao", "torchvision", "not tried", "no Python", "vLLM"],
)
def test_what_a_package_goes_on_without(tmp_path: Path, code: str, package: str, is_optional: bool) -> None:
    (tmp_path / "site-packages").mkdir()
    ops = library(tmp_path / "site-packages" / "its_package" / "ops.so", code)
    (Path(ops).parent / "__init__.py").write_text(package)
    assert extensions.is_optional(ops) == is_optional


def test_only_modules_that_need_torch_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    for name in ("torch/_C.so", "nvidia/x/lib.so", "ops/_ops.cpython-313-x86_64-linux-gnu.so", "numpy/core.so", "x.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).touch()
    needed = {"core": ["libc.so.6"]}
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(site), str(site)])
    monkeypatch.setattr(
        elf,
        "library",
        lambda path: {"needed": needed.get(Path(path).stem, ["libc10.so", "libtorch_cpu.so"])},
    )
    assert [Path(path).name for path in extensions.extensions()] == ["_ops.cpython-313-x86_64-linux-gnu.so"]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("int core_symbol(void) { return 1; }", ""),
        ("int another(void); int core_symbol(void) { return another(); }", ""),
        ("int other_symbol(void) { return 1; }", "undefined symbol: core_symbol"),
        (None, "undefined symbol: core_symbol"),
    ],
    ids=["has it", "is loaded lazily", "lacks it", "none"],
)
def test_a_module_is_loaded_after_the_library_whose_symbols_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None, fault: str
) -> None:
    """As transformer_engine_torch, whose package loads libtransformer_engine.so before it."""
    site = tmp_path / "site-packages"
    site.mkdir()
    module = library(site / "ops.so", "int core_symbol(void); int use(void) { return core_symbol(); }")
    if code:
        library(site / "core" / "libcore.so", code)
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(extensions, "extensions", lambda: iter([module]))
    ((path, answer),) = extensions.loaded_extensions().items()
    assert path == module
    assert answer.endswith(fault)
    assert bool(answer) == bool(fault)


@pytest.mark.parametrize("exists", [True, False])
def test_a_library_that_the_needed_one_needs_is_loaded_too_or_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """As libcudnn_graph and libcurand, which torch does not load and transformer_engine does."""
    site = tmp_path / "site-packages"
    site.mkdir()
    module = library(site / "ops.so", "int core_symbol(void); int use(void) { return core_symbol(); }")
    needed = Path(library(tmp_path / "libcurand.so", "int other(void) { return 1; }", "-Wl,-soname,libcurand.so"))
    core = "int other(void); int core_symbol(void) { return other(); }"
    library(site / "core" / "libcore.so", core, f"-L{tmp_path}", "-lcurand")
    (site / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    needed.rename(site / "nvidia" / "cu13" / "lib" / needed.name if exists else tmp_path / "elsewhere.so")
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(extensions, "extensions", lambda: iter([module]))
    ((_, answer),) = extensions.loaded_extensions().items()
    assert answer.startswith("" if exists else "libcurand.so: cannot open shared object file")
    assert bool(answer) != exists


def test_a_library_that_a_module_names_and_the_loader_does_not_find_stays_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As libcudart.so.12 of another CUDA than torch's, in a folder where the loader does not look."""
    folder = tmp_path / "site-packages" / "nvidia"
    folder.mkdir(parents=True)
    library(folder / "libabsent.so", "int started(void) { return 1; }", "-Wl,-soname,libabsent.so")
    code = "int started(void); int use(void) { return started(); }"
    module = library(folder.parent / "ops.so", code, f"-L{folder}", "-Wl,--no-as-needed", "-labsent")
    monkeypatch.setattr(sys, "path", [str(folder.parent)])
    monkeypatch.setattr(extensions, "extensions", lambda: iter([module]))
    assert "libabsent.so: cannot open shared object file" in extensions.loaded_extensions()[module]


def test_where_many_fail_libraries_are_searched_for_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They fail for a torch of another version, and a search reads every library of site-packages."""
    site = tmp_path / "site-packages"
    site.mkdir()
    code = "int absent_symbol(void); int use(void) { return absent_symbol(); }"
    modules = [library(site / f"ops{number}.so", code) for number in range(extensions.MAX_FAILED + 2)]
    searched: list[str] = []
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(extensions, "extensions", lambda: iter(modules))
    monkeypatch.setattr(extensions, "_missing_library", lambda _, path: searched.append(path))
    assert all("undefined symbol: absent_symbol" in fault for fault in extensions.loaded_extensions().values())
    assert searched == modules[: extensions.MAX_FAILED]


def library(path: Path, code: str, *options: str) -> str:
    """Return the path of a library compiled from C."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc to make one with")
    path.parent.mkdir(exist_ok=True)
    command = [compiler, "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-x", "none", *options]
    subprocess.run(command, input=code.encode(), check=True)
    return str(path)
