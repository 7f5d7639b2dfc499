"""The checks of a report in JUnit's form."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from rdma_images.core.check import Check, Outcome, Severity
from rdma_images.report import junit


def check(outcome: Outcome, **fields: str) -> Check:
    return Check(f"datapath.{outcome}", "it holds", "datapath", "error", outcome, seconds=1.0, **fields)


def written(*checks: Check) -> ElementTree.Element:
    """Return the suite of the written XML."""
    return ElementTree.fromstring(junit.junit_xml(checks))[0]


def element(suite: ElementTree.Element, path: str) -> ElementTree.Element:
    child = suite.find(path)
    assert child is not None, path
    return child


def test_checks_are_test_cases_and_counted() -> None:
    suite = written(
        check("passed"), check("failed", expected="a", actual="<b>", fix="c"), check("skipped", reason="why")
    )
    counted = {name: suite.get(name) for name in ("tests", "failures", "skipped", "time")}
    assert counted == {"tests": "3", "failures": "1", "skipped": "1", "time": "3.000"}
    failure = element(suite, "testcase[@name='datapath.failed']/failure")
    assert failure.get("message") == "expected: a\nfound: <b>\nfix: c"
    assert element(suite, "testcase[@name='datapath.skipped']/skipped").get("message") == "why"
    properties = element(suite, "testcase[@name='datapath.passed']/properties")
    assert {entry.get("name") for entry in properties} == {"id", "severity", "source"}
    assert suite.find("properties") is None


@pytest.mark.parametrize(("severity", "failures"), [("error", "1"), ("warning", "0"), ("note", "0")])
def test_only_an_error_counts_as_a_failure(severity: Severity, failures: str) -> None:
    suite = written(replace(check("failed", actual="slow"), severity=severity))
    assert suite.get("failures") == failures
    assert "found: slow" in ElementTree.tostring(suite, encoding="unicode")


def test_the_suite_names_the_warnings_and_notes_are_none() -> None:
    warning = replace(check("failed", actual="slow"), severity="warning")
    note = replace(check("failed", actual="newer"), id="torch.newest", severity="note")
    suite = written(warning, note, replace(warning, id="size.budget"))
    named = {entry.get("name"): entry.get("value") for entry in element(suite, "properties")}
    assert named == {"warnings": "2", "warned": "datapath.failed, size.budget"}
    output = element(suite, "testcase[@name='torch.newest']/system-out").text or ""
    assert output.startswith("note: expected: ")


def test_what_an_image_said_leaves_the_xml_whole() -> None:
    suite = written(check("failed", actual="\x1b[2J\x00"), check("skipped", reason="\ud800"))
    assert r"\x1b[2J\x00" in element(suite, "testcase/failure").get("message", "")
