"""The bill of materials as CycloneDX: each package once, equal bytes for equal images."""

import dataclasses
import json
from collections.abc import Mapping

import pytest

from rdma_images.bill import cyclonedx_bill, parts
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.inspection.report import Report
from tests.support.case_parts import NOTHING, report_on
from tests.support.published_image import validated

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
