"""Which folders of validators/ an image gets, and why."""

import sys
from pathlib import Path

import pytest

import validators
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Component, Image
from rdma_images.core.paths import VALIDATORS
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Measured
from rdma_images.validate import check_folders, check_list, suite
from tests.support import case_parts, validators_called

FOLDERS = {path.parent.name for path in VALIDATORS.glob("*/test_*.py")}


def changed(fabric: str | None, labels: dict[str, str], **measured: object) -> Inspection:
    """Return the recorded case as an image that nobody planned, with nothing measured but what is given."""
    case = case_parts.recorded()
    return case.model_copy(
        update={
            "subject": case.subject.model_copy(update={"labels": labels}),
            "expected": case.expected.model_copy(update={"fabric": fabric, "components": {}, "target": None}),
            "measured": Measured().model_copy(update=measured),
        }
    )


def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Return the name of a folder of checks that is added to validators/."""
    (tmp_path / "gdrcopy_here").mkdir()
    (tmp_path / "gdrcopy_here" / "__init__.py").write_text(text)
    monkeypatch.setattr(validators, "__path__", [*validators.__path__, str(tmp_path)])
    return "gdrcopy_here"


def test_the_folders_of_a_planned_image_are_its_fabrics_and_its_components() -> None:
    reasons = check_folders.folder_reasons(FOLDERS, case_parts.recorded())
    assert {"any", "efa_or_erdma", "efa", "torch", "images_only", "chain"} <= reasons.keys()
    assert not {"erdma", "nccl_tests", "sagemaker"} & reasons.keys()


def test_an_image_of_somebody_else_gets_what_its_labels_and_files_show() -> None:
    reasons = check_folders.folder_reasons(FOLDERS, changed(None, {}))
    assert reasons.keys() == {"any", "images_only"}
    packages = case_parts.PACKAGES
    assert check_folders.folder_reasons(["torch"], changed(None, {}, packages=packages)) == {
        "torch": "it has the package torch 2.15.0"
    }
    labels = {"io.rdma-images.component.nccl-tests": "2.17.6"}
    assert check_folders.folder_reasons(["nccl_tests"], changed(None, labels)) == {
        "nccl_tests": "its label says nccl-tests 2.17.6"
    }


def test_a_module_that_is_named_as_a_probe_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validators.nccl.test_nccl.torch", sys, raising=False)
    assert validators_called.checks_by_id(case_parts.recorded())["nccl.compiled"].outcome == "passed"


def test_checks_of_other_images_are_not_skipped_but_left_out() -> None:
    checks = validators_called.checks_by_id(changed(None, {}))
    assert "plugin.found" not in checks
    assert "environment.misspelt" in checks


def test_a_new_folder_needs_no_list_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = folder(
        tmp_path,
        monkeypatch,
        "from validators.support.applies import with_component\n"
        "def reason(inspection): return with_component(inspection, 'gdrcopy')\n",
    )
    labels = {"io.rdma-images.component.gdrcopy": "2.6"}
    assert check_folders.folder_reasons([name], changed("efa", labels)) == {name: "its label says gdrcopy 2.6"}
    assert check_folders.folder_reasons([name], changed("efa", {})) == {}


def test_a_folder_that_says_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = folder(tmp_path, monkeypatch, "")
    monkeypatch.delitem(sys.modules, f"validators.{name}", raising=False)
    with pytest.raises(RdmaImagesError, match="does not say which images get its checks\nadd a function"):
        check_folders.folder_reasons([name], case_parts.recorded())


def test_the_list_of_a_planned_image() -> None:
    image = Image(id="i", target="erdma-pytorch", tag="t", fabric="erdma", platform="linux/amd64", axes={})
    listed = suite.list_checks(image, ("static", "device"))
    by_id = {check.id: check for check in listed}
    assert "plugin.found" not in by_id
    assert by_id["erdma.nccl"].folder == "erdma"
    assert by_id["device.erdma-port"].tier == "device"
    lines = str(check_list.check_list_text({"i": listed})).splitlines()
    assert lines[:2] == [f"i: {len(listed)} checks", "validators/any/  every image"]
    assert "validators/erdma/  for eRDMA: as planned" in lines
    assert lines[-1].startswith("More may apply once the image is measured")


def test_the_list_has_the_checks_of_planned_labels() -> None:
    parts = {"nccl": Component("nccl", "2.30.7", "matrix")}
    image = Image(id="i", target="t", tag="t", fabric="efa", platform="linux/amd64", axes={}, components=parts)
    assert "nccl.label" in {check.id for check in suite.list_checks(image, ("static",))}
