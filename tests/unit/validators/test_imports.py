"""What is said of packages that cannot be imported: the package at fault, once, where no other check names it."""

from typing import Any

import pytest

from tests.support import validators_called
from tests.support.changed_case import Changes, changed, check_outcome

S = "/opt/venv/site-packages"
HUB = "huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this module"
JAXLIB = "jaxlib is version 0.4.30, but this version of jax requires version >= 0.4.34."
NMS = "operator torchvision::nms does not exist"
NUMPY = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.3.5"
SYMBOL = f"{S}/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZNK3c106SymInt6sym_neERKS0_"
FOR_ANOTHER_TORCH = {
    "wheels": {S: {"torch": "2.9.1", "vision": "1.0"}},
    "requires": {S: {"vision 1.0": ["torch==2.4"]}},
    "compiled": {S: ["vision"]},
}
NAME = "cannot import name 'ScalingType' from 'torch.nn.functional' (/opt/venv/torch/nn/functional.py)"


def failed(package: str, words: str, **values: Any) -> dict[str, Any]:
    defaults = {
        "version": "1.0",
        "module": package,
        "error": "ImportError",
        "certain": True,
        "through": [package],
    }
    return {"package": package, "words": words, **defaults, **values}


def imports(*faults: dict[str, Any]) -> Changes:
    return {"imports": {"imported": {} if faults else {"vision": "1.0"}, "failed": list(faults)}}


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ((failed("transformers", HUB),), f"transformers 1.0 cannot be imported: {HUB}"),
        (
            (failed("peft", HUB, through=["peft", "transformers"]), failed("transformers", HUB)),
            f"transformers 1.0 cannot be imported: {HUB}, nor can peft",
        ),
        (
            (failed("flax", JAXLIB), failed("jax", JAXLIB, through=[])),
            f"jax 1.0 cannot be imported: {JAXLIB}, nor can flax",
        ),
        (
            (failed("apex", NMS, module="amp_C"), failed("timm", HUB)),
            f"apex 1.0 (amp_C) cannot be imported: {NMS}; timm 1.0 cannot be imported: {HUB}",
        ),
        (
            (failed("torchaudio", SYMBOL, error="OSError"),),
            "torchaudio 1.0 cannot be imported: torchaudio/lib/libtorchaudio.so is built for another torch than "
            "2.15.0, which has no _ZNK3c106SymInt6sym_neERKS0_",
        ),
        (
            (failed("torchao", NAME),),
            "torchao 1.0 cannot be imported: cannot import name 'ScalingType' from 'torch.nn.functional'",
        ),
        (
            (failed("onnxruntime-gpu", NUMPY, module="onnxruntime"),),
            "onnxruntime-gpu 1.0 (onnxruntime) cannot be imported: a module of it was compiled for NumPy 1, and NumPy "
            "2.3.5 is installed",
        ),
    ],
)
def test_the_first_line_names_the_package_at_fault(faults: tuple[dict[str, Any], ...], words: str) -> None:
    assert check_outcome("packages.imports", measured=imports(*faults)) == f"failed: {words}"


@pytest.mark.parametrize(
    ("faults", "severity"),
    [
        ((failed("torch", "cannot import name 'packaging'", module="torch.utils.cpp_extension"),), "warning"),
        ((failed("a", HUB),), "error"),
        ((failed("a", "No module named 'b'", missing="b", required=True),), "error"),
        ((failed("a", "No module named 'b'", missing="b"),), "warning"),
        ((failed("a", NUMPY, error=""),), "warning"),
        ((failed("a", "no reason", certain=False),), "note"),
        ((failed("a", "no reason", certain=False), failed("b", NMS)), "error"),
    ],
)
def test_how_bad_it_is(faults: tuple[dict[str, Any], ...], severity: str) -> None:
    (check,) = validators_called.checks(changed(measured=imports(*faults)), {"packages.imports"})
    assert (check.outcome, check.severity) == ("failed", severity)
    assert "no reason" not in check.actual or severity == "note"


@pytest.mark.parametrize(
    "changes",
    [
        {"torch": {"extensions": {f"{S}/vision/_C.so": "undefined symbol: x"}}},
        {"measured": {"packages": FOR_ANOTHER_TORCH}},
        {"measured": {"packages": {"other_python": {f"{S}/vision-1.0.dist-info": "3.10"}}}},
        {
            "files": {f"{S}/vision/_C.so": {"size": 1, "target": ""}},
            "closures": {f"{S}/vision/_C.so": {"missing": ["libcudart.so.11.0"]}},
        },
    ],
    ids=["torch.extensions", "packages.requires", "packages.python", "transports.load"],
)
def test_a_cause_that_another_check_names_is_reported_once(changes: dict[str, Changes]) -> None:
    faults = imports(failed("vision", NMS), failed("timm", NMS, through=["timm", "vision"]))
    merged = {**changes, "measured": {**changes.get("measured", {}), **faults}}
    assert check_outcome("packages.imports", **merged).startswith("skipped: what cannot be imported has its cause in")


@pytest.mark.parametrize(("package", "severity"), [("vision", "error"), ("timm", "warning")])
def test_a_requirement_that_is_not_met_is_an_error_where_the_import_fails(package: str, severity: str) -> None:
    inspection = changed(measured={"packages": FOR_ANOTHER_TORCH, **imports(failed(package, NMS))})
    (check,) = validators_called.checks(inspection, {"packages.requires"})
    assert (check.outcome, check.severity) == ("failed", severity)


def test_what_works_passes_and_what_was_not_tried_is_skipped() -> None:
    assert check_outcome("packages.imports", measured=imports()) == "passed"
    lost = {"torch": None, "lost": ["torch"], "missing": {"torch": "it crashed"}}
    assert check_outcome("packages.imports", measured={**imports(), **lost}).startswith("skipped: torch cannot")


def test_numpy_complains_of_torch_itself() -> None:
    changes = {"torch": {"numpy": NUMPY, "version": "2.2.2"}}
    (check,) = validators_called.checks(changed(**changes), {"packages.imports"})
    words = "torch 2.2.2 cannot use NumPy: a module of it was compiled for NumPy 1, and NumPy 2.3.5 is installed"
    assert (check.severity, check.actual) == ("warning", words)


def test_what_comes_first_is_named_before_what_fails() -> None:
    shadow = "/opt/other/torch comes before site-packages/torch by PYTHONPATH"
    faults = (failed("torchvision", NMS, shadow=shadow), failed("timm", NMS, shadow=shadow))
    words = f"{shadow}: torchvision, timm 1.0 cannot be imported: {NMS}"
    assert check_outcome("packages.imports", measured=imports(*faults)) == f"failed: {words}"


def test_a_library_of_the_system_that_a_module_needs_is_named() -> None:
    fault = failed("opencv-python", "libGL.so.1: cannot open shared object file: No such file", module="cv2")
    (check,) = validators_called.checks(changed(measured=imports(fault)), {"packages.imports"})
    assert check.actual == "opencv-python 1.0 (cv2) cannot be imported: it finds no libGL.so.1"
    assert check.fix == "install the package of the system that has libGL.so.1: `apt-file search libGL.so.1` names it"


def test_a_module_in_the_working_directory_is_told_with_what_it_hides() -> None:
    hidden = {"module": "torch", "first": "/job/queue.py", "second": "/usr/lib/python3.13/queue.py", "words": "Error"}
    changes = {"imports": {"imported": {"vision": "1.0"}, "failed": [], "hidden": [hidden]}}
    words = "/job/queue.py takes the place of queue.py: in /job, python cannot import torch: Error"
    assert check_outcome("packages.hidden", measured=changes) == f"failed: {words}"
    assert check_outcome("packages.hidden", measured=imports()) == "passed"


def test_libraries_that_a_package_opens_by_their_names_are_told_where_they_are_missing() -> None:
    unopened = {"package": "tensorflow 2.18.0", "file": f"{S}/tensorflow/x.so", "missing": ["libcudnn.so.9"]}
    changes = {"imports": {"imported": {}, "failed": [], "unopened": [unopened]}}
    (check,) = validators_called.checks(changed(measured=changes), {"packages.imports"})
    words = "tensorflow 2.18.0 finds no libcudnn.so.9, which it opens where it meets a GPU: it cannot use one"
    assert (check.severity, check.actual) == ("error", words)
    assert check.fix == "install the release of NVIDIA's wheels that has libcudnn.so.9"


def test_a_library_that_is_installed_and_not_searched_is_not_to_be_installed() -> None:
    """As libcusolver with TensorFlow 2.21.0, whose own library has no way to it."""
    folder = f"{S}/nvidia/cusolver/lib"
    unopened = {"package": "tensorflow 2.21.0", "file": f"{S}/tensorflow/x.so", "missing": ["libcusolver.so.11"]}
    changes = {"imports": {"imported": {}, "failed": [], "unopened": [unopened]}}
    case = changed(measured=changes, files={f"{folder}/libcusolver.so.11": {"size": 1, "target": ""}})
    (check,) = validators_called.checks(case, {"packages.imports"})
    assert check.fix == f"set LD_LIBRARY_PATH={folder}"


def test_a_module_that_was_made_for_a_hidden_torch_is_told_once() -> None:
    shadow = "/opt/other/torch comes before site-packages/torch by PYTHONPATH"
    changes = imports(failed("torchvision", NMS, shadow=shadow))
    torch = {"extensions": {f"{S}/torchvision/_C.so": f"{S}/torchvision/_C.so: undefined symbol: _ZN3c105abcE"}}
    merged = {**changes, "torch": torch}
    assert check_outcome("packages.imports", measured=merged).startswith(f"failed: {shadow}: torchvision 1.0 cannot")
    assert check_outcome("torch.extensions", measured=merged).startswith("skipped: what cannot be loaded")


@pytest.mark.parametrize(
    ("fault", "words", "fix"),
    [
        (
            failed("fastapi", "No module named 'web.parts'", lost="web 0.36.3: web/parts.py"),
            "web 0.36.3 is not as it was installed (web/parts.py): fastapi cannot be imported: No module named "
            "'web.parts'",
            "pip install --force-reinstall --no-deps web==0.36.3",
        ),
        (
            failed("learning", NUMPY, through=["learning", "scipy"]),
            "learning 1.0 cannot be imported: a module of scipy was compiled for NumPy 1, and NumPy 2.3.5 is "
            "installed",
            "pip install 'numpy<2', or a release of learning that was compiled for NumPy 2",
        ),
        (
            failed("pandas", "numpy.dtype size changed, may be incompatible", error="ValueError"),
            "pandas 1.0 cannot be imported: it was compiled for another NumPy than 2.5.5: numpy.dtype size changed, "
            "may be incompatible",
            "see `python3 -c 'import pandas'` in the image, and install releases that belong together: `pip check` "
            "names the requirements that are not met",
        ),
    ],
)  # fmt: skip
def test_what_explains_a_failure_comes_first(fault: dict[str, Any], words: str, fix: str) -> None:
    (check,) = validators_called.checks(changed(measured=imports(fault)), {"packages.imports"})
    assert (check.actual, check.fix) == (words, fix)


def test_the_package_in_which_an_import_ends_is_named_with_its_version() -> None:
    fault = failed("vision", "A non-annotated attribute was detected", through=["vision", "numpy"])
    assert check_outcome("packages.imports", measured=imports(fault)) == (
        "failed: vision 1.0 cannot be imported: numpy 2.5.5 ends with: A non-annotated attribute was detected"
    )


@pytest.mark.parametrize(("version", "is_told"), [("4.67.1", True), ("4.66.5", False)])
def test_a_release_in_a_folder_of_python_path_is_told_where_it_hides_another(version: str, is_told: bool) -> None:
    packages = {"wheels": {S: {"tqdm": "4.66.5"}, "/opt/libs": {"tqdm": version, "alone": "1.0"}}}
    outcome = check_outcome(
        "packages.hidden",
        measured={**imports(), "packages": packages},
        environment={"PYTHONPATH": "/opt/libs:/opt/gone"},
    )
    shadowed = imports(failed("vision", NMS, shadow="/opt/libs/tqdm comes before site-packages/tqdm by PYTHONPATH"))
    told_by_imports = {**shadowed, "packages": packages}
    assert (
        check_outcome("packages.hidden", measured=told_by_imports, environment={"PYTHONPATH": "/opt/libs"}) == "passed"
    )
    words = f"failed: tqdm {version} in /opt/libs comes before 4.66.5 in {S}, by PYTHONPATH"
    assert outcome == (words if is_told else "passed")


def test_two_packages_with_the_same_files_are_told() -> None:
    row = {"package": "onnxruntime 1.23.2", "other": "onnxruntime-gpu 1.23.2", "file": "onnxruntime/__init__.py"}
    changes = {"imports": {"imported": {"vision": "1.0"}, "failed": [], "overwritten": [row]}}
    assert check_outcome("packages.hidden", measured=changes) == (
        "failed: onnxruntime 1.23.2 and onnxruntime-gpu 1.23.2 both write onnxruntime/__init__.py: the one that was "
        "installed last is there"
    )
