"""Images built elsewhere are published with their validation, without provenance."""

import json
import re
from dataclasses import replace

import pytest

from rdma_images.core.check import Check
from rdma_images.core.errors import RefusedError
from rdma_images.inspection.report import Report
from rdma_images.publish import attachment_checks, built_elsewhere, gate, statement
from rdma_images.publish.approved_image import ApprovedImage, artifacts
from rdma_images.report.report_files import REPORT, report_folder
from tests.support.case_parts import GREEN
from tests.support.images import planned_image
from tests.support.published_image import RED, approve, validated

pytestmark = pytest.mark.usefixtures("folders")

SUITE = "sha256:2"  # of the reports of tests
REF = "nvcr.io/nvidia/pytorch:25.10-py3"
DIGEST = "sha256:ab"
WARNING = Check("size.budget", "the image is small", "static", "warning", "failed")
NOTE = Check("nccl.old", "the NCCL is the newest", "static", "note", "failed")


def write(*checks: Check, ref: str = REF) -> Report:
    report = validated(planned_image(), DIGEST, *checks)
    REPORT.write(report_folder(ref).name, report)
    return report


def approved(ref: str = REF, *allow: str) -> ApprovedImage:
    (item,) = built_elsewhere.approved_images([ref], SUITE, allow)
    return item


def test_its_own_name_and_tag_are_published() -> None:
    write()
    item = approved()
    assert (item.image.target, item.tags.full, item.tags.short) == ("pytorch", "25.10-py3", ())
    assert item.build.digest == DIGEST


def test_an_image_by_digest_gets_its_first_digits_as_tag() -> None:
    ref = "team/My_Training@sha256:" + "1f" * 32
    write(ref=ref)
    assert (approved(ref).image.target, approved(ref).tags.full) == ("my_training", "ab")


def test_the_evidence_names_no_build() -> None:
    write(GREEN, WARNING, NOTE)
    origin, *others = artifacts(approved(), {})
    assert origin.title == "validation.json"
    body = json.loads(origin.content)
    assert body["subject"] == [{"name": "pytorch", "digest": {"sha256": "ab"}}]
    assert body["predicateType"] == statement.TEST_RESULT
    assert body["predicate"] == {
        "result": "WARNED",
        "configuration": [{"name": "rdma-images validators", "digest": {"sha256": "2"}}],
        "passedTests": [GREEN.id, NOTE.id],
        "warnedTests": [WARNING.id],
        "failedTests": [],
    }
    assert [artifact.title for artifact in others] == ["sbom.cdx.json", "report.json"]


def test_verify_says_that_it_was_built_elsewhere() -> None:
    write()
    origin, *_ = artifacts(approved(), {})
    (finding,) = attachment_checks.check_attachment(statement.TEST_RESULT, origin.content, DIGEST, ())
    assert finding.check == "origin"
    assert finding.holds
    assert "built elsewhere" in finding.detail
    (other,) = attachment_checks.check_attachment(statement.TEST_RESULT, origin.content, "sha256:cd", ())
    assert other.holds is False


def test_no_commit_is_asked_of_it_but_of_ours() -> None:
    """So it cannot be allowed either: the gate never reports it."""
    report = write()
    assert report.inspection
    report.inspection.subject.labels.clear()
    REPORT.write(report_folder(REF).name, report)
    assert approved().allowed_failed == ()
    with pytest.raises(RefusedError, match=r"source\.committed: no such failed check"):
        approved(REF, gate.COMMITTED)


def test_a_failed_check_is_refused_unless_it_is_allowed() -> None:
    write(GREEN, RED)
    with pytest.raises(RefusedError, match=r"plugin\.found"):
        approved()
    item = approved(REF, RED.id)
    (finding,) = attachment_checks.check_attachment(
        statement.TEST_RESULT, artifacts(item, {})[0].content, DIGEST, [RED.id]
    )
    assert finding.holds


def test_an_image_that_was_not_validated() -> None:
    with pytest.raises(RefusedError, match=r"run `invoke validate --image nvcr\.io/nvidia/pytorch:25\.10-py3` first"):
        approved()


@pytest.mark.parametrize(
    ("suite", "platform", "says"),
    [
        ("sha256:3", "linux/amd64", "run `invoke validate --image nvcr.io/nvidia/pytorch:25.10-py3`, then publish"),
        (SUITE, "linux/s390x", "linux/s390x is no platform that images are published for: linux/amd64, linux/arm64"),
    ],
)
def test_why_it_is_not_published(suite: str, platform: str, says: str) -> None:
    report = write()
    assert report.inspection
    subject = report.inspection.subject.model_copy(update={"platform": platform})
    REPORT.write(
        report_folder(REF).name, replace(report, inspection=report.inspection.model_copy(update={"subject": subject}))
    )
    with pytest.raises(RefusedError, match=re.escape(says)):
        built_elsewhere.approved_images([REF], suite, ())


def test_an_image_of_ours_has_its_provenance() -> None:
    origin, *_ = artifacts(approve(planned_image(), DIGEST), {})
    assert origin.title == "provenance.json"
