"""What is said of a requirement that is not met: who has it, what is installed, and what cannot be imported for it."""

from typing import Any

import pytest

from rdma_images.core.check import Check
from tests.incidents import run
from tests.incidents.case import base
from tests.incidents.image import ImageChange
from tests.support import validators_called
from tests.support.changed_case import Changes, changed

SITE = "/opt/venv/lib/python3.12/site-packages"
S = "/opt/venv/site-packages"
LINUX = "sys_platform == 'linux' and platform_machine == 'x86_64'"
TORCH = ("torch", "2.15.0", f"cuda-toolkit[cublas,nvtx]==13.2.2; {LINUX}", "nvidia-nccl-cu13==2.30.7")
TOOLKIT = (
    *("cuda-toolkit", "13.2.2", f"nvidia-cublas==13.4.1.3.*; ({LINUX}) and extra == 'cublas'"),
    f"nvidia-cufft==12.2.*; ({LINUX}) and extra == 'cufft'",
)
OF_TORCH = "torch 2.15.0 requires nvidia-cublas==13.4.1.3.* by cuda-toolkit 13.2.2"
NUMPY = ("numpy", "2.4.0")
MISSING = "is installed: functions can be missing"
CANNOT = "which is not installed: accelerate, transformers cannot be imported"
HUB = "transformers 5.24.0 requires huggingface-hub<3.0,>=1.31.0, and 0.36.0 is installed"
HUB_REQUIRED = {"transformers 5.24.0": ["huggingface-hub<3.0,>=1.31.0"], "huggingface-hub 0.36.0": ["requests"]}


def requires_check(packages: tuple[tuple[str, ...], ...]) -> Check:
    """Return what packages.requires says of an image with packages: name, version and requirements of each."""
    files = {
        f"{SITE}/{name}-{version}.dist-info/METADATA": {
            "text": "".join(
                f"{line}\n"
                for line in (f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in lines), "")
            )
        }
        for name, version, *lines in packages
    }
    image = base("efa").changed(ImageChange.model_validate({"files": files}))
    return next(check for check in run.run_checks({"image": image})["image"] if check.id == "packages.requires")


@pytest.mark.parametrize(
    ("others", "severity", "words"),
    [
        ((("nvidia-cublas", "13.4.1.3"),), "", ""),
        ((("nvidia-cublas", "13.0.2.14"),), "warning", f"{OF_TORCH}, and 13.0.2.14 {MISSING}"),
        ((("nvidia-cublas", "13.5.0.1"),), "note", f"{OF_TORCH}, and 13.5.0.1 is installed"),
        ((("nvidia-cufft", "11.0.0.1"),), "", ""),
        ((("nvidia-nccl-cu13", "2.28.9"),), "", ""),
        ((), "", ""),
        ((("user", "1", "torch", "numpy<2"), NUMPY), "note", "user 1 requires numpy<2, and 2.4.0 is installed"),
        ((("user", "1", "torch", "numpy<2; python_version < '3.12'"), NUMPY), "", ""),
        ((("user", "1", "torch", "numpy (>=1.8.*"), ("numpy", "of-the-team")), "", ""),
        ((("other", "1", "numpy<2"), NUMPY), "", ""),
    ],
)  # fmt: skip
def test_requirements_are_followed_through_extras(
    others: tuple[tuple[str, ...], ...], severity: str, words: str
) -> None:
    check = requires_check((TORCH, TOOLKIT, *others))
    assert (check.outcome == "failed", check.actual if severity else "") == (bool(severity), words)
    assert not severity or check.severity == severity
    assert not severity or check.fix.startswith(f"pip install '{words.split(' requires ')[1].split(' ')[0].strip(',')}")


def failed(package: str, words: str, **values: Any) -> dict[str, Any]:
    defaults = {"version": "1.0", "module": package, "error": "ImportError", "certain": True, "through": [package]}
    return {"package": package, "words": words, **defaults, **values}


def run_checks(
    *failures: dict[str, Any], versions: dict[str, str], requires: dict[str, list[str]], **changes: Changes
) -> dict[str, Check]:
    """Return the failed checks of a case with packages, imports that fail, and other changes."""
    measured = {
        "packages": {"wheels": {S: versions}, "requires": {S: requires}, "compiled": {S: ["torchvision"]}},
        "imports": {"imported": {}, "failed": list(failures)},
    }
    inspection = changed(measured=measured, **changes)
    return {check.id: check for check in validators_called.checks(inspection) if check.outcome == "failed"}


def test_an_unfit_package_is_named_with_who_requires_it_and_what_cannot_be_imported() -> None:
    missing = {"through": ["transformers", "huggingface-hub"], "missing": "requests", "required": True}
    failures = failed("transformers", "No module named 'requests'", **missing)
    versions = {"transformers": "5.24.0", "huggingface-hub": "0.36.0"}
    checks = run_checks(failures, versions=versions, requires=HUB_REQUIRED)
    assert "packages.imports" not in checks
    check = checks["packages.requires"]
    assert (check.severity, check.fix) == ("error", "pip install 'huggingface-hub<3.0,>=1.31.0'")
    assert check.actual == f"{HUB}: transformers cannot be imported; transformers: No module named 'requests'"


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        (["safetensors>=0.4.3"], f"accelerate 1.15.0 requires safetensors>=0.4.3, {CANNOT}"),
        (["tensors-in-files>=1", "numpy"], f"accelerate 1.15.0 requires tensors-in-files>=1, {CANNOT}"),
        ([], "accelerate 1.0 cannot be imported: No module named 'safetensors', nor can transformers"),
    ],
)  # fmt: skip
def test_a_missing_package_is_named_with_who_requires_it(requirements: list[str], words: str) -> None:
    missing = {"missing": "safetensors", "required": True}
    failures = [
        failed("transformers", "no safetensors", **missing, through=["transformers", "accelerate"]),
        failed("accelerate", "No module named 'safetensors'", **missing),
    ]
    versions = {"accelerate": "1.15.0", "transformers": "5.24.0", "numpy": "2.4.0"}
    checks = run_checks(*failures, versions=versions, requires={"accelerate 1.15.0": requirements})
    assert "packages.requires" not in checks
    assert checks["packages.imports"].actual == words


def test_a_module_for_another_torch_is_reported_once() -> None:
    extension = f"{S}/torchvision/_C.so"
    symbol = f"{extension}: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEi"
    operator = failed("torchvision", "operator torchvision::nms does not exist")
    versions = {"torchvision": "0.28.0", "torch": "2.15.0"}
    requires = {"torchvision 0.28.0": ["torch==2.13.0"]}
    checks = run_checks(operator, versions=versions, requires=requires, torch={"extensions": {extension: symbol}})
    assert not {"torch.extensions", "packages.imports", "transports.load"} & set(checks)
    check = checks["packages.requires"]
    words = "torchvision 0.28.0 requires torch==2.13.0, and 2.15.0 is installed: torchvision cannot be imported; "
    assert (check.severity, check.actual.startswith(words)) == ("error", True)
    assert "which has no _ZN3c104cuda29c10_cuda_check_implementationEi" in check.actual
