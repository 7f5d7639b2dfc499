"""Reports are read back as they were written; other files are refused in a sentence."""

import json
from pathlib import Path
from typing import get_args

import pytest

from rdma_images import report as reports
from rdma_images.core.check import Outcome, Severity, Tier
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import PROJECT
from rdma_images.inspection.report import SCHEMA
from rdma_images.report.report_files import report_folder
from tests.support.case_reports import FAILED, PASSED, SKIPPED, WARNED, report


def test_written_and_read_back(tmp_path: Path) -> None:
    saved = report(PASSED, SKIPPED)
    path = reports.write(saved, tmp_path)
    assert reports.REPORT.read_file(path) == saved
    assert json.loads(path.read_text())["passed"] is True
    assert {p.name for p in tmp_path.iterdir()} == {"report.json", "report.xml", "report.html"}


def test_the_schema_in_docs_describes_what_is_written(tmp_path: Path) -> None:
    schema = json.loads((PROJECT / "docs" / "reference" / "report-schema.json").read_text())
    document = json.loads(reports.write(report(PASSED, FAILED), tmp_path).read_text())
    assert set(schema["properties"]) == set(document) == set(schema["required"])
    check = schema["properties"]["checks"]["items"]
    assert set(check["properties"]) == set(document["checks"][0]) == set(check["required"])
    assert schema["properties"]["schema"]["const"] == document["schema"] == SCHEMA
    for name, values in (("tier", Tier), ("severity", Severity), ("outcome", Outcome)):
        assert check["properties"][name]["enum"] == list(get_args(values))


def test_a_cached_report_says_so(tmp_path: Path) -> None:
    assert reports.write_cached(report(PASSED), tmp_path).reused
    assert (tmp_path / "report.xml").exists()
    read = reports.REPORT.read_file(tmp_path / "report.json")
    assert read
    assert read.reused


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}', '{"schema": 1}'])
def test_what_is_no_report(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    assert reports.REPORT.read_file(path) is None
    path.write_text(text)
    with pytest.raises(RdmaImagesError, match="invoke validate"):
        reports.REPORT.read_file(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("seconds", "x"), ("checks", [{"id": 1}]), ("checks", 5), ("stand_ins", "all"), ("schema", 3), ("facts", [])],
)
def test_a_damaged_report_is_a_sentence(tmp_path: Path, key: str, value: object) -> None:
    path = reports.write(report(PASSED), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(RdmaImagesError, match="invoke validate"):
        reports.REPORT.read_file(path)


def test_an_outcome_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    path = reports.write(report(PASSED), tmp_path)
    path.write_text(path.read_text().replace('"outcome": "passed"', '"outcome": "splendid"'))
    with pytest.raises(RdmaImagesError, match=r"checks\.0\.outcome"):
        reports.REPORT.read_file(path)
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(RdmaImagesError, match="cannot be read"):
        reports.REPORT.read_file(path)


def test_a_question_does_not_take_the_place_of_the_evidence() -> None:
    names = [
        report_folder("a/b:c").name,
        report_folder("a/b:c", fabric="ib").name,
        report_folder("a/b:c", instance="p5.48xlarge").name,
        report_folder("a/b:c", host="ssh://n", fabric="ib").name,
    ]
    assert names == ["a-b-c", "a-b-c@ib", "a-b-c@p5.48xlarge", "a-b-c@ssh---n@ib"]


def test_a_warning_alone_passes() -> None:
    assert report(PASSED, WARNED).passed
    assert not report(PASSED, FAILED).passed
