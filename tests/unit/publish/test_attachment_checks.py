"""What is said of an attachment by its form."""

import dataclasses

import pytest

from rdma_images.core.image import Image
from rdma_images.publish import attachment_checks, statement
from tests.support.case_parts import GREEN
from tests.support.published_image import RED, validated

pytestmark = pytest.mark.usefixtures("folders")


def test_an_attached_report_counts_its_warnings_apart(image: Image) -> None:
    report = validated(image, "sha256:" + "a" * 64)
    warned = dataclasses.replace(report, checks=(GREEN, dataclasses.replace(RED, severity="warning")))
    predicate = statement.report_predicate(warned, ())
    content = statement.in_toto_statement("t", warned.digest, statement.REPORT, predicate)
    (finding,) = attachment_checks.check_attachment(statement.REPORT, content, warned.digest, ())
    assert finding.holds
    assert finding.detail.startswith("1 passed, 1 warned; measured ")
    assert finding.detail.endswith(f"; warned: {RED.id}")
