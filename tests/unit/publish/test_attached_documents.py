"""What is attached to an image, and what anybody can read back of it."""

import dataclasses
import json
from collections.abc import Mapping

import pytest

from rdma_images.bill import cyclonedx_bill, parts
from rdma_images.ci import job_summary
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.inspection.report import Report, decode_report, encode_report
from rdma_images.publish import attachment_checks, statement
from rdma_images.publish.approved_image import artifacts
from tests.support.case_parts import GREEN, NOTHING, report_on
from tests.support.published_image import RED, approve, make_artifacts, validated

pytestmark = pytest.mark.usefixtures("folders")


def bill(name: str, report: Report, labels: Mapping[str, str] = NOTHING) -> bytes:
    return cyclonedx_bill.cyclonedx_bill(name, report, parts.list_parts(report, labels=labels))


class TestBill:
    def test_every_package_is_in_it_once_with_its_address(self, image: Image) -> None:
        body = json.loads(bill("efa-pytorch", validated(image, "sha256:1")))
        assert body["bomFormat"] == "CycloneDX"
        assert {component["purl"] for component in body["components"]} == {
            "pkg:pypi/torch@2.15.0",
            "pkg:pypi/pip@26.0",
            "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?distro=debian-13",
        }

    def test_a_package_of_no_public_index_does_not_name_it(self, image: Image) -> None:
        origins = {"torch": "./torch-2.15.0-py3-none-any.whl", "pip": "git+https://git.example/pip@0123"}
        labels = {f"io.rdma-images.package-origin.{name}": origin for name, origin in origins.items()}
        body = json.loads(bill("efa-pytorch", validated(image, "sha256:1"), labels))
        assert {component["purl"] for component in body["components"] if "deb" not in component["purl"]} == {
            "pkg:generic/torch@2.15.0",
            "pkg:generic/pip@26.0?vcs_url=git%2Bhttps://git.example/pip%400123",
        }

    def test_the_same_image_has_the_same_bytes(self, image: Image) -> None:
        assert bill("t", validated(image, "sha256:1")) == bill("t", validated(image, "sha256:1"))
        assert bill("t", validated(image, "sha256:1")) != bill("t", validated(image, "sha256:2"))

    def test_nothing_measured_is_no_empty_bill(self, image: Image) -> None:
        with pytest.raises(RdmaImagesError, match="has measured no packages"):
            bill("t", dataclasses.replace(report_on(image), inspection=None))


def test_statements_name_their_subject_and_forms(image: Image) -> None:
    provenance, _, _, proof = (json.loads(artifact.content) for artifact in make_artifacts(approve(image, "sha256:ab")))
    assert provenance["subject"] == [{"name": "efa-pytorch", "digest": {"sha256": "ab"}}]
    assert provenance["predicateType"] == "https://slsa.dev/provenance/v1"
    assert provenance["predicate"]["runDetails"]["builder"]["version"] == {"docker": "26.1", "buildx": "0.13"}
    assert proof["predicate"]["report"]["digest"] == "sha256:ab"


def test_a_provenance_has_the_files_that_the_image_was_built_from(image: Image) -> None:
    item = approve(image, "sha256:ab")
    build = dataclasses.replace(item.build, files={"matrix.yaml": "c" * 64})
    provenance, *_ = make_artifacts(dataclasses.replace(item, build=build))
    dependencies = json.loads(provenance.content)["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"name": "matrix.yaml", "digest": {"sha256": "c" * 64}} in dependencies


def test_artifacts_are_made_once_an_image(image: Image) -> None:
    item = approve(image, "sha256:ab")
    first = make_artifacts(item)
    assert artifacts(item, {}) == first, "it is written down"


def test_the_summary_has_a_row_for_each_image(image: Image) -> None:
    folder = paths.image_folder(image.id)
    folder.mkdir(parents=True)
    item = approve(image, "sha256:" + "a" * 64, GREEN, RED)
    (folder / "build.json").write_text(json.dumps(dataclasses.asdict(item.build)))
    (folder / "report.json").write_text(json.dumps(encode_report(item.report)))
    text = job_summary.summary()
    assert text.startswith("| image | build | checks | published |")
    assert f"| {image.id} | 1 s<br>`sha256:{'a' * 12}` | **failed**: 1 passed, 1 failed (plugin.found) | no |" in text


def test_the_summary_has_a_row_for_an_image_that_was_validated_alone(image: Image) -> None:
    folder = paths.image_folder("their-image-1.0")
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(encode_report(validated(image, "sha256:" + "a" * 64, GREEN))))
    assert "| their-image-1.0 | not here | passed: 1 passed | no |" in job_summary.summary()


def test_an_attached_report_counts_its_warnings_apart(image: Image) -> None:
    report = validated(image, "sha256:" + "a" * 64)
    warned = dataclasses.replace(report, checks=(GREEN, dataclasses.replace(RED, severity="warning")))
    predicate = statement.report_predicate(warned, ())
    content = statement.statement("t", warned.digest, statement.REPORT, predicate)
    (finding,) = attachment_checks.check_attachment(statement.REPORT, content, warned.digest, ())
    assert finding.holds
    assert finding.detail.startswith("1 passed, 1 warned; measured ")
    assert finding.detail.endswith(f"; warned: {RED.id}")


def test_a_report_is_what_it_was_after_the_round_trip(image: Image) -> None:
    report = validated(image, "sha256:ab")
    back = statement.parse_predicate(
        statement.statement("t", "sha256:ab", statement.REPORT, statement.report_predicate(report, ()))
    )
    assert decode_report(back["report"]) == report
