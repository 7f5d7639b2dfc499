"""The summary of a CI run has a row for each image."""

import dataclasses
import json

import pytest

from rdma_images.ci import job_summary
from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.inspection.report import encode_report
from tests.support.case_parts import GREEN
from tests.support.published_image import RED, approve, validated

pytestmark = pytest.mark.usefixtures("folders")


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
