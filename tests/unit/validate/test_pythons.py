"""The Pythons on PATH, on this machine and in folders made for it; modules of Python that are compiled for CUDA."""

import sys
from pathlib import Path
from typing import Any

import pytest

from rdma_images.validate.probes import libraries, pythons, tree
from rdma_images.validate.probes.rootfs import Root


def test_this_python_is_found_with_its_packages() -> None:
    prefix = Path(sys.prefix)
    (python,) = pythons.on_path(str(prefix / "bin"), Root())
    assert python["path"] == str(prefix / "bin")
    assert set(python["names"]) <= {"python", "python3"}
    assert set(python["folders"]) & {str(Path(folder).resolve()) for folder in sys.path}


def make_prefix(root: Path, prefix: str, *versions: str) -> Path:
    """Return a folder of programs, python3 a link to the first of these versions, each with its folder of packages."""
    programs = root / prefix / "bin"
    programs.mkdir(parents=True)
    for version in versions:
        (programs / f"python{version}").touch()
        (root / prefix / "lib" / f"python{version}" / "site-packages").mkdir(parents=True)
    (programs / "python3").symlink_to(f"python{versions[0]}")
    return programs


def test_a_python_has_the_packages_of_its_own_version(tmp_path: Path) -> None:
    programs = make_prefix(tmp_path, "own", "3.11", "3.12")
    prefix = str(tmp_path / "own/lib/python3.11/site-packages")
    python = {"path": str(programs), "names": ["python3"], "folders": [prefix]}
    assert pythons.on_path(f"relative:{programs}:{programs}/:{tmp_path}/none", Root()) == [python]
    (programs / "python3").unlink()
    assert pythons.on_path(str(programs), Root()) == []
    (programs / "python").touch()
    site_folders = [str(tmp_path / f"own/lib/python{version}/site-packages") for version in ("3.11", "3.12")]
    assert pythons.on_path(str(programs), Root()) == [
        {"path": str(programs), "names": ["python"], "folders": site_folders}
    ]


@pytest.mark.parametrize(
    ("setting", "with_base"), [("= true", True), (" = True  ", True), ("= false", False), ("", False)]
)
def test_a_virtual_environment_says_whether_it_has_the_packages_of_its_base(
    tmp_path: Path, setting: str, with_base: bool
) -> None:
    base = make_prefix(tmp_path, "base", "3.11")
    programs = make_prefix(tmp_path, "own", "3.11")
    (programs / "python3").unlink()
    (programs / "python3").symlink_to(base / "python3")
    (tmp_path / "own/pyvenv.cfg").write_text(f"home = {base}\ninclude-system-site-packages {setting}\n")
    folders = [str(tmp_path / path / "lib/python3.11/site-packages") for path in ("own", "base")]
    assert pythons.on_path(str(programs), Root())[0]["folders"] == folders[: 1 + with_base]


@pytest.mark.parametrize(
    ("name", "needed", "read"),
    [
        ("flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", "libcudart.so.12", True),
        ("vllm/_moe_C.abi3.so", "libtorch_cuda.so", True),
        ("sgl_kernel/sm90/common_ops.abi3.so", "libc10_cuda.so", True),
        ("transformer_engine_torch.cpython-312-x86_64-linux-gnu.so", "libcudart.so.13", True),
        ("xformers/_C.so", "libcudart.so.12", True),
        ("yaml/_yaml_C.so", "libyaml.so.0", False),
        ("numpy/_core/_multiarray_umath.cpython-312-x86_64-linux-gnu.so", "libgfortran.so.5", False),
        ("pplx/_ext.cpython-312-x86_64-linux-gnu.so", "libibverbs.so.1", True),
        ("onnxruntime/capi/libonnxruntime_providers_cuda.so", "libcudart.so.12", False),
        ("torch/_C.cpython-312-x86_64-linux-gnu.so", "libcudart.so.12", False),
        ("deep_ep_cpp.so", "libcudart.so.12", False),
    ],
)
def test_modules_that_are_compiled_for_cuda(name: str, needed: str, read: bool) -> None:
    path = f"/opt/venv/lib/python3.12/site-packages/{name}"
    files: dict[str, dict[str, Any]] = {
        path: {"size": 1, "target": "", "condition": ""},
        f"/link-packages/{name}": {"target": path},
    }
    assert libraries.modules(files, lambda _: [needed]) == [path] * read
    assert bool(tree.MODULE.fullmatch(path)) is not name.startswith("torch/")


def test_what_a_library_needs(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    assert (
        libraries.needed_libraries(Root(), str(tmp_path / "text.so"))
        == libraries.needed_libraries(Root(), str(tmp_path / "gone.so"))
        == []
    )
    assert "libc.so.6" in libraries.needed_libraries(Root(), str(Path(sys.executable).resolve()))
