"""Add checks to report.xml in JUnit's form. pytest writes those of the validators."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from rdma_images.core import atomic
from rdma_images.core.check import Check


def add_checks(path: Path, checks: Iterable[Check]) -> None:
    """Add checks to the suite in the report.xml at `path`, as the validators' own."""
    tree = ElementTree.parse(path)
    suite = tree.getroot() if tree.getroot().tag == "testsuite" else tree.getroot().find("testsuite")
    if suite is None:
        return
    for check in checks:
        suite.append(_test_case(check))
    cases = suite.findall("testcase")
    for case in cases:
        _demote_warning(case)
    _list_warnings(suite, cases)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
    atomic.write(path, ElementTree.tostring(tree.getroot(), encoding="unicode", xml_declaration=True))


def _demote_warning(case: ElementTree.Element) -> None:
    """Turn the failure of a warning or note into output, which does not count."""
    failure, severity = case.find("failure"), _property(case, "severity")
    if failure is not None and severity in ("warning", "note"):
        case.remove(failure)
        text = f"{severity}: {failure.get('message') or failure.text or ''}"
        ElementTree.SubElement(case, "system-out").text = text


def _list_warnings(suite: ElementTree.Element, cases: Sequence[ElementTree.Element]) -> None:
    """Name the warnings as properties of the suite.

    JUnit's form has no attribute for them.
    """
    warned = [
        _property(case, "id") or str(case.get("name"))
        for case in cases
        if _property(case, "severity") == "warning" and case.find("system-out") is not None
    ]
    for properties in suite.findall("properties"):
        suite.remove(properties)
    if warned:
        properties = ElementTree.Element("properties")
        for name, value in (("warnings", str(len(warned))), ("warned", ", ".join(warned))):
            ElementTree.SubElement(properties, "property", name=name, value=value)
        suite.insert(0, properties)


def _property(case: ElementTree.Element, name: str) -> str:
    """Return a property of a test case, "" where it has none of that name."""
    entry = case.find(f"properties/property[@name='{name}']")
    return "" if entry is None else entry.get("value", "")


def write_checks(path: Path, checks: Iterable[Check]) -> None:
    """Write a report.xml of these checks alone."""
    atomic.write(path, '<testsuites><testsuite name="rdma-images" errors="0" /></testsuites>')
    add_checks(path, checks)


def _test_case(check: Check) -> ElementTree.Element:
    """Return a check as a test case."""
    case = ElementTree.Element("testcase", classname=f"tier.{check.tier}", name=check.id, time=f"{check.seconds:.3f}")
    properties = ElementTree.SubElement(case, "properties")
    for name in ("id", "severity", "source"):
        ElementTree.SubElement(properties, "property", name=name, value=getattr(check, name))
    if check.outcome == "failed":
        message = f"expected: {check.expected}\nfound: {check.actual}\nfix: {check.fix}"
        ElementTree.SubElement(case, "failure", message=message).text = message
    if check.outcome in ("skipped", "not measured"):
        ElementTree.SubElement(case, "skipped", message=check.reason)
    return case
