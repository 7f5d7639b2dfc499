"""Trivy's and Grype's CycloneDX documents are read; another image's, or none, is refused in a sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.publish.evidence.scan_result import Vulnerability
from rdma_images.publish.evidence.scanner import ScannedImage, parse_report, read_report
from tests.support import scan_parts, upstream
from tests.support.scan_parts import DIGEST, IMAGE, OTHER, write_report

SCANNERS = (scan_parts.trivy, scan_parts.grype)
TRIVY, GRYPE = ("aquasecurity/trivy", "v0.74.0"), ("anchore/grype", "v0.116.0")


def vulnerabilities(folder: Path, document: dict[str, Any]) -> tuple[Vulnerability, ...]:
    return read_report(write_report(folder, document), IMAGE).vulnerabilities


def test_trivy_names_fixes_and_days(tmp_path: Path) -> None:
    scan = read_report(write_report(tmp_path, scan_parts.trivy()), IMAGE)
    assert (scan.digest, scan.scanner, scan.names_fixes) == (DIGEST, "trivy 0.74.0", True)
    assert scan.finished.isoformat() == "2026-11-20T03:17:00+00:00"
    assert scan.vulnerabilities == (
        Vulnerability("CVE-2026-1001", "libexample1", "1.0-1", "critical", "1.0-1+deb13u1", "2026-10-01"),
        Vulnerability("CVE-2026-1002", "examplelib", "1.0", "medium"),
    )


def test_grype_names_neither(tmp_path: Path) -> None:
    scan = read_report(write_report(tmp_path, scan_parts.grype()), IMAGE)
    assert (scan.scanner, scan.names_fixes) == ("grype 0.121.2", False)
    assert scan.vulnerabilities[0] == Vulnerability("CVE-2026-1001", "libexample1", "1.0-1", "critical")


def test_a_vulnerability_that_names_no_package_still_counts(tmp_path: Path) -> None:
    document = scan_parts.trivy() | {"vulnerabilities": [{"id": "CVE-2026-1", "ratings": None}]}
    (found,) = vulnerabilities(tmp_path, document)
    assert (found.id, found.package, found.severity) == ("CVE-2026-1", "", "unknown")


def test_each_affected_package_is_one_and_twice_the_same_is_one(tmp_path: Path) -> None:
    entry = {"id": "CVE-2026-1", "affects": [{"ref": "1"}, {"ref": "2"}]}
    found = vulnerabilities(tmp_path, scan_parts.trivy() | {"vulnerabilities": [entry, entry]})
    assert [vulnerability.package for vulnerability in found] == ["examplelib", "libexample1"]


@pytest.mark.parametrize("write", SCANNERS)
def test_a_scan_of_another_image_is_refused(write: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    path = write_report(tmp_path, write(OTHER))
    sentence = rf"^{path}: is about another image than rdma-images.*{OTHER}.*\n.*rdma-images/efa-pytorch@{DIGEST}$"
    with pytest.raises(RefusedError, match=sentence):
        read_report(path, IMAGE)


def test_the_digest_by_which_it_was_scanned_names_the_image(tmp_path: Path) -> None:
    document = scan_parts.grype(OTHER)
    document["metadata"]["component"]["name"] = IMAGE.by_digest
    assert read_report(write_report(tmp_path, document), IMAGE).digest == DIGEST
    document["metadata"]["component"] = {"name": "rdma-images/efa-pytorch:1"}
    with pytest.raises(RefusedError, match="does not say which image it is about\nscan this image again"):
        read_report(write_report(tmp_path, document), IMAGE)


@pytest.mark.parametrize("name", ["h.example:5000/a/b:1", "h.example:5000/a/b", f"h.example:5000/a/b@{OTHER}"])
def test_an_image_is_scanned_by_its_digest(name: str) -> None:
    assert ScannedImage(name, DIGEST).by_digest == f"h.example:5000/a/b@{DIGEST}"


def test_a_truncated_report_is_one_sentence() -> None:
    content = json.dumps(scan_parts.trivy()).encode()
    for length in (0, 1, len(content) // 3, len(content) // 2, len(content) - 1):
        with pytest.raises(RefusedError, match=r"^report: is truncated: .*\nlet the scanner write it again"):
            parse_report(content[:length], "report")


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b"<html>", "is not JSON"),
        (b"[]", "is not a CycloneDX document\nwrite one: `trivy image"),
        (b'{"SchemaVersion": 2}', "is not a CycloneDX document"),
        (b'{"bomFormat": "CycloneDX"}', "vulnerabilities: Field required\nit is a bill of materials: have it scanned"),
        (b'{"bomFormat": "CycloneDX", "vulnerabilities": [{}]}', "vulnerabilities.0.id: Field required\nlet the"),
    ],
)
def test_what_is_no_report_is_one_sentence(document: bytes, sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        parse_report(document, "report.json")


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no such file\nname the document"):
        read_report(tmp_path / "none.json", IMAGE)


def test_what_a_terminal_would_obey_is_escaped(tmp_path: Path) -> None:
    document = scan_parts.trivy()
    document["components"] = [scan_parts.DEBIAN | {"name": "a\x1b[2J"}]
    assert vulnerabilities(tmp_path, document)[0].package == "a\\x1b[2J"


@upstream.needs_repositories
@pytest.mark.parametrize(
    ("source", "path", "at_least"),
    [
        (TRIVY, "integration/testdata/npm-cyclonedx.json.golden", 1),
        (TRIVY, "integration/testdata/pom-cyclonedx.json.golden", 2),
        (GRYPE, "grype/presenter/cyclonedx/testdata/snapshot/TestCycloneDxPresenterImage.golden", 2),
    ],
)
def test_every_vulnerability_of_their_own_test_data_is_read(
    source: tuple[str, str], path: str, at_least: int, tmp_path: Path
) -> None:
    document = json.loads(upstream.text(*source, path))
    document["metadata"]["component"]["name"] = IMAGE.by_digest
    affected = {(entry["id"], affect["ref"]) for entry in document["vulnerabilities"] for affect in entry["affects"]}
    found = vulnerabilities(tmp_path, document)
    assert len(found) == len(affected) >= at_least
    assert all(vulnerability.package and vulnerability.installed for vulnerability in found)
