"""Statements are read back as they were written."""

import pytest

from rdma_images.core.image import Image
from rdma_images.inspection.report import decode_report
from rdma_images.publish import statement
from tests.support.published_image import validated

pytestmark = pytest.mark.usefixtures("folders")


def test_a_report_is_what_it_was_after_the_round_trip(image: Image) -> None:
    report = validated(image, "sha256:ab")
    back = statement.parse_predicate(
        statement.in_toto_statement("t", "sha256:ab", statement.REPORT, statement.report_predicate(report, ()))
    )
    assert decode_report(back["report"]) == report
