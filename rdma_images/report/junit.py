"""A report's checks in JUnit's form, for the pages of CI systems."""

from collections.abc import Sequence
from xml.etree import ElementTree

from rdma_images.core.check import Check


def junit_xml(checks: Sequence[Check]) -> str:
    """Return report.xml, in which only errors count as failures; the suite's properties name the warnings."""
    cases = [_test_case(check) for check in checks]
    counts = {
        "tests": str(len(cases)),
        "errors": "0",
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
        "time": f"{sum(check.seconds for check in checks):.3f}",
    }
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {"name": "rdma-images", **counts})
    if warned := [check.id for check in checks if check.outcome == "failed" and check.severity == "warning"]:
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in (("warnings", str(len(warned))), ("warned", ", ".join(warned))):
            ElementTree.SubElement(properties, "property", name=name, value=value)
    suite.extend(cases)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _test_case(check: Check) -> ElementTree.Element:
    """Return a check as a test case."""
    case = ElementTree.Element("testcase", classname=f"tier.{check.tier}", name=check.id, time=f"{check.seconds:.3f}")
    properties = ElementTree.SubElement(case, "properties")
    for name in ("id", "severity", "source"):
        ElementTree.SubElement(properties, "property", name=name, value=getattr(check, name))
    message = f"expected: {check.expected}\nfound: {check.actual}\nfix: {check.fix}"
    if check.outcome == "failed" and check.severity == "error":
        ElementTree.SubElement(case, "failure", message=message).text = message
    elif check.outcome == "failed":
        ElementTree.SubElement(case, "system-out").text = f"{check.severity}: {message}"
    if check.outcome in ("skipped", "not measured"):
        ElementTree.SubElement(case, "skipped", message=check.reason)
    return case
