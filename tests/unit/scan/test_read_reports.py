"""Scanners' reports give the same vulnerabilities; others are refused in a sentence."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from alibabacloud_cr20181201 import models as acr_models

from rdma_images.core.errors import RefusedError
from rdma_images.scan.read_reports import parse_report, read_reports
from tests.support import scan_parts, upstream
from tests.support.scan_parts import DIGEST, OTHER, SUBJECT, write_report

NAMING = {
    "trivy": scan_parts.trivy,
    "grype": scan_parts.grype,
    "sarif": scan_parts.sarif,
    "cyclonedx": scan_parts.cyclonedx,
    "ecr": scan_parts.ecr_basic,
    "inspector": scan_parts.inspector,
}
ALL = NAMING | {"osv-scanner": scan_parts.osv_scanner, "acr": scan_parts.acr}

TRIVY, GRYPE, OSV = ("aquasecurity/trivy", "v0.74.0"), ("anchore/grype", "v0.116.0"), ("google/osv-scanner", "v2.5.0")
OUTPUTS = "internal/output/__snapshots__"
OF_TRIVY = ("alpine-310", "debian-stretch", "distroless-python27", "ubuntu-1804", "rockylinux-8")


@pytest.mark.parametrize("name", ALL)
def test_each_scanner_is_read(name: str, tmp_path: Path) -> None:
    scan = read_reports([write_report(tmp_path, ALL[name]())], SUBJECT, DIGEST if name == "acr" else "")
    critical, medium = scan.vulnerabilities
    assert (critical.package, critical.installed) == ("libexample1", "1.0-1")
    assert "CVE-2026-1001" in critical.ids
    assert critical.severity == ("high" if name == "acr" else "critical")
    assert critical.fixed_in == ("" if name == "ecr" else "1.0-1+deb13u1")
    assert (medium.package, medium.installed, medium.severity, medium.fixed_in) == ("examplelib", "1.0", "medium", "")
    assert "CVE-2026-1002" in medium.ids


def test_a_vulnerability_of_osv_scanners_cyclonedx_is_never_dropped() -> None:
    """It rates by a vector alone, and names packages without a version, or none at all."""
    vector = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
    document = scan_parts.cyclonedx()
    document["vulnerabilities"] = [
        {"id": "OSV-1", "ratings": [{"vector": vector}], "affects": [{"ref": "pkg:pypi/examplelib"}]},
        {"id": "OSV-2", "ratings": [{"score": 7.5}], "affects": []},
    ]
    first, second = parse_report(json.dumps(document).encode(), "bom.json").vulnerabilities
    assert (first.package, first.installed, first.severity) == ("examplelib", "1.0", "critical")
    assert (second.id, second.package, second.severity) == ("OSV-2", "", "high")


@pytest.mark.parametrize("name", ["trivy", "grype", "osv-scanner", "cyclonedx", "inspector"])
def test_the_day_of_the_advisory_is_read(name: str, tmp_path: Path) -> None:
    scan = read_reports([write_report(tmp_path, ALL[name]())], SUBJECT)
    assert [vulnerability.published for vulnerability in scan.vulnerabilities] == ["2026-10-01", ""]


@pytest.mark.parametrize("name", ["trivy", "grype", "cyclonedx", "ecr", "inspector"])
def test_the_day_of_the_scan_is_read(name: str, tmp_path: Path) -> None:
    scan = read_reports([write_report(tmp_path, ALL[name]())], SUBJECT)
    assert scan.finished == "2026-11-20T03:17:00+00:00"
    assert scan.database == ("2026-11-19" if name in ("grype", "ecr") else "")


@pytest.mark.parametrize("name", NAMING)
def test_a_scan_of_another_image_is_refused(name: str, tmp_path: Path) -> None:
    path = write_report(tmp_path, NAMING[name](OTHER))
    with pytest.raises(RefusedError, match=rf"^{path}: is about another image than rdma-images.*{OTHER}"):
        read_reports([path], SUBJECT, DIGEST)


def test_equal_layers_show_that_it_is_the_image(tmp_path: Path) -> None:
    report = scan_parts.trivy(OTHER)
    report["Metadata"]["DiffIDs"] = list(scan_parts.LAYERS)
    assert read_reports([write_report(tmp_path, report)], SUBJECT).digest == DIGEST
    report["Metadata"] = {"DiffIDs": list(reversed(scan_parts.LAYERS))}
    with pytest.raises(RefusedError, match="an image of other layers"):
        read_reports([write_report(tmp_path, report)], SUBJECT)


def test_what_names_no_image_asks_for_the_digest(tmp_path: Path) -> None:
    path = write_report(tmp_path, scan_parts.acr())
    with pytest.raises(RefusedError, match=f"does not say which image.*\n.*--digest {DIGEST}"):
        read_reports([path], SUBJECT)


def test_another_digest_than_the_images_is_refused_whatever_the_report_says(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=f"--digest {OTHER}: .* is {DIGEST}"):
        read_reports([write_report(tmp_path, scan_parts.trivy())], SUBJECT, OTHER)


@pytest.mark.parametrize("name", ALL)
def test_a_truncated_report_is_one_sentence(name: str) -> None:
    content = json.dumps(ALL[name]()).encode()
    for length in (0, 1, len(content) // 3, len(content) // 2, len(content) - 1):
        with pytest.raises(RefusedError, match=r"^report: is truncated: .*\nhave the scanner write it again"):
            parse_report(content[:length], "report")


def _without(document: dict[str, Any], *steps: str | int) -> dict[str, Any]:
    inner: Any = document
    for step in steps[:-1]:
        inner = inner[step]
    del inner[steps[-1]]
    return document


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b"<html>", "is no JSON"),
        (b"[]", "is no report of a scanner\nread are: Trivy"),
        ({"spdxVersion": "SPDX-2.3"}, "is no report of a scanner"),
        (_without(scan_parts.cyclonedx(), "vulnerabilities"), "vulnerabilities: Field required\na bill of materials"),
        (_without(scan_parts.grype(), "matches", 0, "artifact"), "matches.0.artifact.name: Field required"),
        (
            scan_parts.ecr_basic() | {"imageScanStatus": {"status": "FAILED", "description": "too big"}},
            "FAILED: too big",
        ),
        (scan_parts.ecr_basic() | {"imageScanFindings": None}, "without findings|COMPLETE"),
    ],
)
def test_what_is_no_report_is_one_sentence(document: Any, sentence: str) -> None:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(RefusedError, match=sentence):
        parse_report(content, "report.json")


def test_a_missing_page_is_refused_and_all_pages_are_one_scan(tmp_path: Path) -> None:
    pages = [scan_parts.acr(), scan_parts.acr()]
    for number, page in enumerate(pages):
        page["body"]["Vulnerabilities"] = page["body"]["Vulnerabilities"][number : number + 1]
    paths = [write_report(tmp_path, page, f"{number}.json") for number, page in enumerate(pages)]
    with pytest.raises(RefusedError, match="has 1 of 2 vulnerabilities\nfetch the other pages"):
        read_reports(paths[:1], SUBJECT, DIGEST)
    assert len(read_reports(paths, SUBJECT, DIGEST).vulnerabilities) == 2
    partial = write_report(tmp_path, scan_parts.ecr_basic() | {"nextToken": "x"})
    with pytest.raises(RefusedError, match="is a part"):
        read_reports([partial], SUBJECT)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no such file\nname the report"):
        read_reports([tmp_path / "none.json"], SUBJECT)


@pytest.mark.parametrize("make", [scan_parts.trivy, scan_parts.grype])
def test_ten_thousand_vulnerabilities_are_read(make: Callable[[], dict[str, Any]]) -> None:
    document = make()
    text = json.dumps(document)
    if "Results" in document:
        entry = document["Results"][0]["Vulnerabilities"][0]
        document["Results"][0]["Vulnerabilities"] = [entry | {"VulnerabilityID": f"CVE-1-{n}"} for n in range(10_000)]
    else:
        entry = document["matches"][0]
        document["matches"] = [
            entry | {"vulnerability": {"id": f"CVE-1-{n}", "severity": "High"}} for n in range(10_000)
        ]
    assert len(parse_report(json.dumps(document).encode(), text[:1]).vulnerabilities) >= 10_000


def test_what_a_terminal_would_obey_is_escaped() -> None:
    document = scan_parts.trivy()
    document["Results"][0]["Vulnerabilities"][0]["PkgName"] = "a\x1b[2J"
    assert parse_report(json.dumps(document).encode(), "r").vulnerabilities[0].package == "a\\x1b[2J"


def vulnerabilities(document: Any) -> Iterator[Any]:
    """Yield each finding of a report, by the key under which its format has them."""
    for result in document.get("Results", ()):
        yield from result.get("Vulnerabilities", ())
    yield from document.get("matches", ())
    for run in document.get("runs", ()):
        yield from run["results"]
    for entry in document.get("vulnerabilities", ()) or ():
        yield from entry["affects"] or [entry]
    for result in document.get("results", ()) or ():
        for package in result["packages"]:
            yield from package.get("vulnerabilities", ())


def snapshots(path: str) -> Iterator[tuple[str, str]]:
    """Yield name and content of each JSON document in a file of Go's snapshots."""
    for part in upstream.text(*OSV, path).split("\n---\n"):
        match = re.match(r"\s*\[(.*?)\]\n(\{.*)", part, re.DOTALL)
        if match:
            yield match[1], match[2]


@upstream.needs_repositories
@pytest.mark.parametrize(
    ("source", "path", "min_findings"),
    [
        *((TRIVY, f"integration/testdata/{name}.json.golden", 1) for name in OF_TRIVY),
        (TRIVY, "integration/testdata/alpine-310.sarif.golden", 4),
        (TRIVY, "integration/testdata/npm-cyclonedx.json.golden", 1),
        (TRIVY, "integration/testdata/pom-cyclonedx.json.golden", 2),
        (GRYPE, "grype/presenter/json/testdata/snapshot/TestJsonImgsPresenter.golden", 2),
        (GRYPE, "grype/presenter/sarif/testdata/snapshot/TestSarifPresenter_image.golden", 2),
        (GRYPE, "grype/presenter/cyclonedx/testdata/snapshot/TestCycloneDxPresenterImage.golden", 2),
    ],
)
def test_every_finding_of_trivy_and_grype_is_read(source: tuple[str, str], path: str, min_findings: int) -> None:
    text = upstream.text(*source, path)
    report = parse_report(text.encode(), path)
    assert len(report.vulnerabilities) == len(list(vulnerabilities(json.loads(text)))) >= min_findings


@upstream.needs_repositories
@pytest.mark.parametrize("name", ["machinejson", "sarif", "cyclonedx"])
def test_every_finding_of_osv_scanner_is_read(name: str) -> None:
    total = 0
    for title, text in snapshots(f"{OUTPUTS}/{name}_test.snap"):
        document = json.loads(text)
        report = parse_report(text.encode(), title)
        assert {entry.id for entry in report.vulnerabilities} == ids(document), title
        total += len(report.vulnerabilities)
    assert total >= 60


def ids(document: Any) -> set[str]:
    return {str(entry.get("id") or entry.get("ruleId")) for entry in vulnerabilities(document)}


def undeclared(document: Any, shape: Any, path: str = "") -> Iterator[str]:
    """Yield the keys of a document that botocore's model of the answer does not have."""
    if shape.type_name == "structure":
        for key, value in document.items():
            if key in shape.members:
                yield from undeclared(value, shape.members[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif shape.type_name == "list":
        for item in document:
            yield from undeclared(item, shape.member, path)


@pytest.mark.parametrize("make", [scan_parts.ecr_basic, scan_parts.inspector])
def test_amazons_answers_have_the_names_of_its_api(make: Any) -> None:
    client = boto3.client("ecr", region_name="us-west-2", aws_access_key_id="x", aws_secret_access_key="x")
    shape = client.meta.service_model.operation_model("DescribeImageScanFindings").output_shape
    assert list(undeclared(make(), shape)) == []


def test_alibabas_answer_has_the_names_of_its_api() -> None:
    body: Mapping[str, Any] = scan_parts.acr()["body"]
    assert acr_models.ListRepoTagScanResultResponseBody().from_map(dict(body)).to_map() == body
