"""The scanners' own outputs, from the tests in their repositories: no vulnerability of theirs is lost."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest
from alibabacloud_cr20181201 import models as acr_models

from rdma_images.scan.read_reports import parse_report
from tests.support import scan_parts, upstream

TRIVY, GRYPE, OSV = ("aquasecurity/trivy", "v0.74.0"), ("anchore/grype", "v0.116.0"), ("google/osv-scanner", "v2.5.0")
OUTPUTS = "internal/output/__snapshots__"
OF_TRIVY = ("alpine-310", "debian-stretch", "distroless-python27", "ubuntu-1804", "rockylinux-8")


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
