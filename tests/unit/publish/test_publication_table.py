"""What is shown of a publication and of a verification."""

import json

from rdma_images.publish import publication_table
from rdma_images.publish.attach import Attachment
from rdma_images.publish.attachment_checks import VerifyFinding
from rdma_images.publish.publication import PublishedCopy
from rdma_images.publish.publish_images import PublishResult
from rdma_images.publish.push import LayerTraffic
from rdma_images.publish.verify import Verification


def test_a_publication_is_reported_in_lines_that_can_be_copied() -> None:
    copy = PublishedCopy(
        registry="local",
        ref="127.0.0.1:5000/training/efa-pytorch@sha256:" + "a" * 64,
        tags=("2.15.0-debian13", "latest"),
        result="pushed",
        media_type="application/vnd.oci.image.manifest.v1+json",
        layers=2,
        bytes=3_000_000,
        traffic=LayerTraffic(pushed=2_000_000, mounted=1_000_000, seconds=2.0),
        attached=(Attachment("t", "report.json", "sha256:1", new=True),),
    )
    outcomes = [PublishResult("efa-1", "local", copy), PublishResult("efa-1", "far", error="far is unreachable")]
    assert publication_table.publish_text(outcomes).plain.splitlines() == [
        "local  efa-1",
        "  result    pushed in 2.0 s, 1.00 MB/s",
        f"  image     {copy.ref}",
        "  tags      2.15.0-debian13, latest",
        "  layers    2.00 MB sent, 1.00 MB mounted",
        "  attached  report.json; not signed",
        "far  efa-1",
        "  failed    far is unreachable",
    ]
    first, second = json.loads(publication_table.as_json(outcomes))
    assert list(first) == ["image_id", "registry", "copy", "error"]
    assert (first["copy"]["ref"], second["copy"]) == (copy.ref, None)


def test_a_verification_is_a_line_for_each_thing() -> None:
    verification = Verification(
        "r", (VerifyFinding("signature", None, "there is none"), VerifyFinding("report", False, "failed: x"))
    )
    assert publication_table.verify_text([verification]).plain.splitlines() == [
        "r",
        "  not checked signature  there is none",
        "  FAILED      report     failed: x",
    ]
