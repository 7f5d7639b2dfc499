"""Write report.xml, JUnit's form of the checks: pytest writes those of the validators, the others are added here."""

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from rdma_images.core import atomic
from rdma_images.core.pipeline import Check


def add_checks(path: Path, checks: Iterable[Check]) -> None:
    """Add checks to the one suite of the report.xml at `path`, in the form that the validators' own have there."""
    tree = ElementTree.parse(path)
    suite = tree.getroot() if tree.getroot().tag == "testsuite" else tree.getroot().find("testsuite")
    if suite is None:
        return
    for check in checks:
        suite.append(_case(check))
    cases = suite.findall("testcase")
    for case in cases:
        _mark_warning(case)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
    atomic.write(path, ElementTree.tostring(tree.getroot(), encoding="unicode", xml_declaration=True))


def _mark_warning(case: ElementTree.Element) -> None:
    """Keep a warning from counting as a failure: its text becomes the test's output."""
    severity = case.find("properties/property[@name='severity']")
    failure = case.find("failure")
    if failure is not None and severity is not None and severity.get("value") in ("warning", "note"):
        case.remove(failure)
        ElementTree.SubElement(case, "system-out").text = f"warning: {failure.get('message') or failure.text or ''}"


def write_checks(path: Path, checks: Iterable[Check]) -> None:
    """Write a report.xml of these checks alone."""
    atomic.write(path, '<testsuites><testsuite name="rdma-images" errors="0" /></testsuites>')
    add_checks(path, checks)


def _case(check: Check) -> ElementTree.Element:
    """Return a check as a test case."""
    case = ElementTree.Element("testcase", classname=f"tier.{check.tier}", name=check.id, time=f"{check.seconds:.3f}")
    properties = ElementTree.SubElement(case, "properties")
    for name in ("id", "severity", "source"):
        ElementTree.SubElement(properties, "property", name=name, value=getattr(check, name))
    if check.outcome == "failed":
        message = f"expected: {check.expected}\nfound: {check.found}\nfix: {check.fix}"
        ElementTree.SubElement(case, "failure", message=message).text = message
    if check.outcome == "skipped":
        ElementTree.SubElement(case, "skipped", message=check.reason)
    return case
