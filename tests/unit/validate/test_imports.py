"""Packages of the GPU stack are imported in processes of their own; what only a machine lacks is no fault."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rdma_images.validate.probes import distributions, imports
from rdma_images.validate.probes.rootfs import Root
from tests.incidents import elf_files

READ_ONLY = "raise OSError(30, 'Read-only file system', '/root/.cache')"
NO_FILE = "open(__file__[:-11] + 'models.json')"
REAL_TIME_SIGNAL = "import os; os.kill(os.getpid(), 35)"
NO_NET = "import socket; socket.create_connection(('203.0.113.1', 9), 0.1)"
ABORTS = "import faulthandler, os; faulthandler.disable(); os.abort()"
OPERATOR = "raise RuntimeError('operator torchvision::nms does not exist')"
COMPLAINS_OF_NUMPY = """import os
os.write(2, b"A module that was compiled using NumPy 1.x cannot be run in\\nNumPy 2.3.5 as it may crash.\\n")
"""
NUMPY_COMPLAINT = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.3.5"
VERSIONS = "raise RuntimeError('vision-data version (0.6.8) does not match vision version (0.6.10)')"
VERSION = """try:
    raise LookupError("found huggingface-hub==0.20.3")
except LookupError as error:
    raise ImportError("huggingface-hub>=0.34.0 is required\\nTry: pip install") from error
"""
LOADER = """import ctypes
try:
    ctypes.CDLL("libabsent.so.1")
except OSError as error:
    raise OSError("Could not load this library") from error
"""
SWALLOWED = """try:
    raise RuntimeError("No CUDA GPUs are available")
except RuntimeError:
    raise ImportError("the compiled module cannot be used")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of packages from which alone, beside Python's own, modules are imported."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr("sys.path", [str(folder), *(path for path in sys.path if "-packages" not in path)])
    return folder


def package(site: Path, name: str, requires: str = "torch", code: str = "", files: tuple[str, ...] = ()) -> None:
    """Install a package with one module."""
    module, record = site / name, site / f"{name}-1.0.dist-info"
    module.mkdir()
    record.mkdir()
    (module / "__init__.py").write_text(code or "value = 1\n")
    lines = "".join(f"Requires-Dist: {word}\n" for word in requires.split("|") if word)
    (record / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n{lines}\n")
    rows = [f"{name}/__init__.py,sha256=x,{len(code) or 9}", *(f"{file},sha256=x,9" for file in files)]
    (record / "RECORD").write_text("\n".join(rows) + "\n")


def imported() -> dict[str, Any]:
    answer = imports.import_packages()
    assert answer
    return answer


@pytest.mark.parametrize(
    ("code", "error", "words", "certain"),
    [
        ("", None, "", True),
        ("import absent_module", "ModuleNotFoundError", "No module named 'absent_module'", True),
        ("from os import absent", "ImportError", "cannot import name 'absent' from 'os'", True),
        (VERSION, "ImportError", "huggingface-hub>=0.34.0 is required", True),
        (LOADER, "OSError", "libabsent.so.1: cannot open shared object file: No such file or directory", True),
        (OPERATOR, "RuntimeError", "operator torchvision::nms does not exist", True),
        ("import os; os.absent", "AttributeError", "module 'os' has no attribute 'absent'", True),
        ("import sys; sys.exit(3)", "SystemExit", "3", False),
        (ABORTS, "SIGABRT", "the process ends with SIGABRT", False),
        (REAL_TIME_SIGNAL, "signal 35", "the process ends with signal 35", False),
        (NO_FILE, "FileNotFoundError", "[Errno 2] No such file or directory: '", True),
        ("open('/opt/absent')", None, "", True),
        (COMPLAINS_OF_NUMPY, "", NUMPY_COMPLAINT, True),
        (COMPLAINS_OF_NUMPY + "raise ImportError", "ImportError", NUMPY_COMPLAINT, True),
        (READ_ONLY, None, "", True),
        (NO_NET, None, "", True),
        (SWALLOWED, None, "", True),
        ("raise RuntimeError('Found no NVIDIA driver on your system')", None, "", True),
        ("raise RuntimeError('Failed to infer device type')", None, "", True),
        ("raise ImportError('libcuda.so.1: cannot open shared object file')", None, "", True),
        ("raise ImportError('vision requires CUDA')", None, "", True),
        ("raise ImportError('This package requires a GPU')", None, "", True),
        ("raise AssertionError('vision needs compute capability 9.0, found 0.0')", None, "", True),
        (VERSIONS, "RuntimeError", "vision-data version (0.6.8) does not match", True),
        ("raise OSError('vision library not found')", "OSError", "vision library not found", True),
        ("raise ImportError('vision is not for this place')", "ImportError", "vision is not for this place", False),
    ],
)  # fmt: skip
def test_what_an_import_says(site: Path, code: str, error: str | None, words: str, certain: bool) -> None:
    package(site, "vision", code=code)
    answer = imported()
    if error is None:
        assert not answer["failed"]
        assert code == NO_NET or bool(answer["imported"]) == (not code)
        return
    (failed,) = answer["failed"]
    assert (failed["package"], failed["version"], failed["module"]) == ("vision", "1.0", "vision")
    assert (failed["error"], failed["certain"]) == (error, certain)
    assert failed["words"].startswith(words)


def test_a_failure_names_the_package_in_which_it_arises_and_what_that_requires(site: Path) -> None:
    package(site, "tuning", code="import models")
    package(site, "models", requires="torch; extra == 'torch'|absent-module>=2", code="import absent_module.parts")
    failed = {fault["package"]: fault for fault in imported()["failed"]}
    assert failed["tuning"]["through"] == ["tuning", "models"]
    assert failed["models"]["through"] == ["models"]
    assert {(fault["missing"], fault["required"]) for fault in failed.values()} == {("absent_module", True)}


def test_a_distribution_that_is_not_there_is_named_by_its_name(site: Path) -> None:
    sentence = "The 'absent-package>=0.8' distribution was not found and is required by this application."
    code = f'import importlib.metadata as m\nraise m.PackageNotFoundError("{sentence}")'
    package(site, "models", requires="torch|absent-package>=0.8", code=code)
    (failure,) = imported()["failed"]
    assert (failure["missing"], failure["required"], failure["certain"]) == ("absent-package", True, True)


@pytest.mark.parametrize(
    ("requires", "is_chosen"),
    [
        ("torch", True),
        ("jax>=0.4", True),
        ("torch; extra == 'torch'", True),
        ("user", True),
        ("torch-optimizer", False),
        ("", False),
    ],
)
def test_which_packages_are_imported(site: Path, requires: str, is_chosen: bool) -> None:
    package(site, "user")
    package(site, "plugin", requires=requires)
    chosen = distributions.select_gpu_stack(list(distributions.read_distributions(Root(), [str(site)])))
    assert [distribution.name for distribution in chosen] == ["plugin", "user"][not is_chosen :]


def test_a_package_that_lacks_a_library_is_imported(site: Path) -> None:
    for name, needed in (("vision", ["libabsent.so.1"]), ("numbers_", ["libc.so.6"])):
        package(site, name, requires="", code=LOADER if needed[0] != "libc.so.6" else "", files=(f"{name}/core.so",))
        (site / name / "core.so").write_bytes(elf_files.library(needed=needed))
    answer = imported()
    assert [fault["package"] for fault in answer["failed"]] == ["vision"]
    assert not answer["imported"]


def test_a_name_that_is_not_there_is_said_with_the_release_that_lacks_it(site: Path) -> None:
    package(site, "accelerate")
    package(site, "peft", code="from accelerate import clear_device_cache")
    (failed,) = imported()["failed"]
    assert failed["words"] == "cannot import name 'clear_device_cache' from 'accelerate' of accelerate 1.0"


@pytest.mark.parametrize("with_setuptools", [True, False])
def test_what_compiles_operators_is_imported_where_setuptools_is(site: Path, with_setuptools: bool) -> None:
    package(site, "torch", requires="")
    (site / "torch/utils").mkdir()
    (site / "torch/utils/__init__.py").touch()
    (site / "torch/utils/cpp_extension.py").write_text("from setuptools import packaging\n")
    package(site, "user")
    if with_setuptools:
        package(site, "setuptools", requires="")
    failed = [(fault["package"], fault["module"], fault["words"]) for fault in imported()["failed"]]
    words = "cannot import name 'packaging' from 'setuptools' of setuptools 1.0"
    assert failed == [("torch", "torch.utils.cpp_extension", words)][: int(with_setuptools)]


def test_the_modules_of_a_package() -> None:
    files = ["a/__init__.py", "a/b/__init__.py", "c/d/__init__.py", "_e.abi3.so", "f.cpython-313-x86_64-linux-gnu.so"]
    assert distributions.importable_modules({**dict.fromkeys(files, 9), "g/__init__.py": 0}) == ["_e", "a", "c.d", "f"]


@pytest.mark.parametrize(
    ("package_name", "modules", "expected"),
    [
        ("flash-attn", ["hopper", "flash_attn", "flash_attn_2_cuda"], ["flash_attn"]),
        ("flashinfer-python", ["b12x", "build_backend", "flashinfer"], ["flashinfer"]),
        ("cupy-cuda12x", ["cupy", "cupyx"], ["cupy"]),
        ("nccl-extensions", ["nccl._extensions", "nccl.ep", "nccl.m2n"], ["nccl.ep", "nccl.m2n"]),
        ("opencv", ["cv2", "_private", "tests"], ["cv2"]),
        ("kernels", ["left", "right"], []),
    ],
)
def test_which_modules_are_a_packages_own(package_name: str, modules: list[str], expected: list[str]) -> None:
    assert distributions.choose_modules(package_name, modules) == expected


def test_a_module_that_needs_the_driver_is_imported_without_one(site: Path) -> None:
    """The functions of the library that stands in for it are there, and find no GPU."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc to make a module with")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has the driver")
    (site / "driver.c").write_text("int cuInit(unsigned flags) { return 0; }\n")
    (site / "module.c").write_text("int cuInit(unsigned); int use(void) { return cuInit(0); }\n")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", site / "libcuda.so.1", site / "driver.c"],
        check=True,
    )
    package(
        site,
        "transport",
        requires="",
        code=f"import ctypes\nassert ctypes.CDLL({str(site / 'ops.so')!r}, mode=2).use() == 100, 'no GPU'\n",
        files=("ops.so",),
    )
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", site / "ops.so", site / "module.c", site / "libcuda.so.1"], check=True
    )
    (site / "libcuda.so.1").unlink()
    answer = imported()
    assert answer == {"imported": {"transport": "1.0"}, "failed": [], "unopened": [], "overwritten": [], "hidden": []}


def test_an_import_that_waits_is_given_up_and_no_fault(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MODULE_SECONDS", 0.2)
    package(site, "waiting", code="import time; time.sleep(600)")
    package(site, "working")
    assert imported() == {"imported": {"working": "1.0"}, "failed": [], "unopened": [], "overwritten": [], "hidden": []}


@pytest.mark.usefixtures("site")
def test_there_is_nothing_to_import() -> None:
    assert imports.import_packages() is None


def test_others_than_the_gpu_stack_are_imported_where_they_are_in_doubt(site: Path) -> None:
    """A requirement of another version, a lost module, compiled modules, and what nothing requires."""
    fails = "raise TypeError('Descriptors cannot be created directly')"
    package(site, "messages", requires="")
    package(site, "writer", requires="messages<1", code=fails)
    package(site, "sound", requires="messages>=1", code=fails)
    package(site, "lost", requires="messages", code=fails, files=("lost/part.py",))
    package(site, "top", requires="writer|sound|lost", code="import absent_option")
    assert {fault["package"] for fault in imported()["failed"]} == {"writer", "lost"}
    package(site, "user", requires="top", code="import writer")
    assert {fault["package"] for fault in imported()["failed"]} == {"writer", "lost", "user"}


def test_what_another_import_has_loaded_is_not_imported_again(site: Path) -> None:
    package(site, "vision", code="import sys, types\nsys.modules['writer'] = types.ModuleType('writer')")
    package(site, "writer", requires="absent-package", code="raise TypeError('no such type')")
    assert not imported()["failed"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import numbers\nnumbers.absent", "module 'numbers' has no attribute 'absent'"),
        ("import models\nmodels.absent", "module 'models' has no attribute 'absent' of models 1.0"),
        ("from models import absent", "cannot import name 'absent' from 'models' of models 1.0"),
        ("None.absent", None),
    ],
)
def test_attributes_that_lack(site: Path, code: str, words: str | None) -> None:
    package(site, "models", requires="")
    package(site, "user", requires="models", code=code)
    assert [fault["words"] for fault in imported()["failed"]] == ([words] if words else [])


@pytest.mark.parametrize(
    ("code", "is_required"),
    [("import pkg_resources", True), ("import models.absent", True), ("import absent_module", False)],
)
def test_modules_that_have_to_be_there(site: Path, code: str, is_required: bool) -> None:
    package(site, "models", requires="")
    package(site, "vision", requires="torch|models", code=f"import sys; sys.modules.pop('pkg_resources', 0)\n{code}")
    (failed,) = imported()["failed"]
    assert failed["required"] == is_required


def test_a_folder_of_python_path_explains_what_fails(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = site.parent / "first"
    first.mkdir()
    package(site, "models", requires="")
    package(site, "user", requires="models", code="from models import value")
    package(first, "models", requires="", code="other = 1")
    monkeypatch.setenv("PYTHONPATH", str(first))
    monkeypatch.setattr("sys.path", [str(first), *sys.path])
    (failed,) = imported()["failed"]
    assert failed["shadow"] == f"{first}/models comes before site-packages/models by PYTHONPATH"


@pytest.mark.parametrize(
    ("file", "code", "module", "words"),
    [
        ("numbers.py", "", "user", "AttributeError: module 'numbers' has no attribute 'Number'"),
        ("models.py", "raise LookupError(1)", "models", "LookupError: 1"),
        ("other.py", "raise LookupError(1)", "", ""),
        ("models.py", "", "", ""),
    ],
)
def test_a_file_of_the_working_directory_hides_what_is_imported_elsewhere(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, code: str, module: str, words: str
) -> None:
    package(site, "models", requires="", code="import numbers; numbers.Number")
    package(site, "user", requires="models", code="import models")
    job = tmp_path / "job"
    job.mkdir()
    (job / file).write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(site))
    answer = imports.import_packages(str(job))
    assert answer
    assert [(row["module"], row["first"], row["words"]) for row in answer["hidden"]] == (
        [(module, f"{job}/{file}", words)] if module else []
    )


def test_a_file_that_is_not_as_it_was_installed_explains_what_fails(site: Path) -> None:
    package(site, "models", requires="", files=("models/part.py",))
    package(site, "user", requires="models", code="import models.part")
    failed = {fault["package"]: fault for fault in imported()["failed"]}
    assert failed["user"]["lost"] == "models 1.0: models/part.py"


def test_a_file_that_somebody_has_edited_fails_with_its_words(site: Path) -> None:
    package(site, "models", requires="", code="import os; os.absent\n")
    with (site / "models" / "__init__.py").open("a") as file:
        file.write("# patched\n")
    (failed,) = imported()["failed"]
    assert (failed["words"], failed["lost"]) == ("module 'os' has no attribute 'absent'", "")


def test_a_package_whose_file_another_one_has_overwritten_is_found(site: Path) -> None:
    package(site, "models", requires="", code="value = 10")
    package(site, "other", requires="", files=("models/__init__.py",))
    assert not imported()["overwritten"]
    (site / "models" / "__init__.py").write_text("value = 11000")
    row = {"package": "models 1.0", "other": "other 1.0", "file": "models/__init__.py"}
    assert imported()["overwritten"] == [row]
