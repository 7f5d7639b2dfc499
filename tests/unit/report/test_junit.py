"""Checks that no validator made, in the same report.xml."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rdma_images.core.check import Check, Outcome, Severity
from rdma_images.report import junit

XML = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">
<testsuite name="rdma-images" errors="0" failures="0" skipped="1" tests="2" time="0.5">
<testcase classname="a" name="b" time="0.25" />
<testcase classname="a" name="c" time="0.25"><skipped message="no GPU" /></testcase>
</testsuite></testsuites>"""


def check(outcome: Outcome, **fields: str) -> Check:
    return Check(f"datapath.{outcome}", "it holds", "datapath", "error", outcome, seconds=1.0, **fields)


def element(suite: ElementTree.Element, path: str) -> ElementTree.Element:
    child = suite.find(path)
    assert child is not None, path
    return child


def test_checks_are_added_to_the_suite_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(XML)
    checks = [check("passed"), check("failed", expected="a", actual="<b>", fix="c"), check("skipped", reason="why")]
    junit.add_checks(path, checks)
    suite = ElementTree.parse(path).getroot()[0]
    counted = {name: suite.get(name) for name in ("tests", "failures", "skipped", "time")}
    assert counted == {"tests": "5", "failures": "1", "skipped": "2", "time": "3.500"}
    assert (
        element(suite, "testcase[@name='datapath.failed']/failure").get("message") == "expected: a\nfound: <b>\nfix: c"
    )
    assert element(suite, "testcase[@name='datapath.skipped']/skipped").get("message") == "why"
    assert element(suite, "testcase[@name='datapath.passed']")[0].tag == "properties"


@pytest.mark.parametrize(("severity", "failures"), [("error", "1"), ("warning", "0"), ("note", "0")])
def test_only_an_error_counts_as_a_failure(tmp_path: Path, severity: Severity, failures: str) -> None:
    path = tmp_path / "report.xml"
    path.write_text(XML)
    junit.add_checks(path, [replace(check("failed", actual="slow"), severity=severity)])
    suite = ElementTree.parse(path).getroot()[0]
    assert suite.get("failures") == failures
    assert "found: slow" in ElementTree.tostring(suite, encoding="unicode")


def test_the_suite_names_the_warnings_and_notes_are_none(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(XML)
    warning = replace(check("failed", actual="slow"), severity="warning")
    note = replace(check("failed", actual="newer"), id="torch.newest", severity="note")
    junit.add_checks(path, [warning, note])
    junit.add_checks(path, [replace(warning, id="size.budget")])
    suite = ElementTree.parse(path).getroot()[0]
    assert suite[0].tag == "properties"
    named = {entry.get("name"): entry.get("value") for entry in element(suite, "properties")}
    assert named == {"warnings": "2", "warned": "datapath.failed, size.budget"}
    output = element(suite, "testcase[@name='torch.newest']/system-out").text or ""
    assert output.startswith("note: expected: ")


def test_a_suite_without_warnings_names_none(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    junit.write_checks(path, [check("passed")])
    assert ElementTree.parse(path).getroot()[0].find("properties") is None


def test_what_an_image_said_leaves_the_xml_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(XML)
    junit.add_checks(path, [check("failed", actual="\x1b[2J\x00"), check("skipped", reason="\ud800")])
    suite = ElementTree.parse(path).getroot()[0]
    assert r"\x1b[2J\x00" in element(suite, "testcase/failure").get("message", "")
