"""Extension modules are loaded with all symbols bound, in a process that one of them may end."""

import os
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


def test_one_that_ends_the_process_hides_no_other(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = extensions._fault

    def ends(path: str) -> str:
        return os._exit(9) if path == paths[1] else real(path)

    monkeypatch.setattr(extensions, "_fault", ends)
    assert extensions.loaded_extensions() == {
        paths[0]: "",
        paths[1]: "the process ended while it was loaded",
        paths[2]: "",
    }


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
