"""A policy's decision on an image: made before it is published, attached, and read back."""

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.core.yaml_file import loads
from rdma_images.plan import matrix
from rdma_images.publish import publish_images
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.attach import attach
from rdma_images.publish.evidence.policy import VULNERABILITIES, Policy, decide
from rdma_images.publish.evidence.scan_result import SCAN, Scan, Vulnerability
from rdma_images.publish.published_images import published_images
from rdma_images.publish.verify import verify
from rdma_images.registry.client import Repository
from rdma_images.registry.connection import Connection
from rdma_images.registry.registries import Oci
from rdma_images.report.report_files import REPORT
from tests.support.publish_doubles import Store, served
from tests.support.published_image import approve, make_artifacts, put_image

pytestmark = pytest.mark.usefixtures("folders")

TODAY = datetime.now(UTC).date()
UNTIL = TODAY + timedelta(60)
STATEMENT = f"reason: not started, owner: team@example.com, until: {UNTIL}"
POLICY = loads(
    f"""
grace-days: {{critical: 0}}
exceptions:
  - {{id: CVE-2026-1, {STATEMENT}}}
""",
    Policy,
    "policy.yaml",
)


@pytest.fixture
def remote() -> Iterator[tuple[Repository, Oci]]:
    store = Store()
    with served(store.handler()) as host:
        repository = Repository(Connection(host, lambda: None), "training/efa-pytorch")
        yield repository, Oci(kind="oci", host=host, credentials="none", prefix="training")


def scan_with(digest: str, *ids: str) -> Scan:
    vulnerabilities = tuple(Vulnerability(cve, "libexample1", "1.0", "critical", "1.1") for cve in ids)
    return Scan(digest, "trivy 0.74.0", datetime.now(UTC), True, vulnerabilities)


def scanned_item(image: Image, digest: str, *ids: str) -> ApprovedImage:
    scan = scan_with(digest, *ids)
    return dataclasses.replace(approve(image, digest), scan=scan, decisions=decide(scan, POLICY, TODAY))


def approved(image: Image, policy: Policy | None) -> tuple[ApprovedImage, ...]:
    images = publish_images.approved_images([image], [image], matrix.load(), "sha256:2")
    return publish_images.with_decisions(images, policy)


def test_an_image_is_published_when_the_policy_lets_it(image: Image) -> None:
    item = approve(image, "sha256:1")
    BUILD_FILE.write(image.id, item.build)
    REPORT.write(image.id, item.report)
    assert approved(image, None)[0].scan is None
    with pytest.raises(RefusedError, match="was never scanned"):
        approved(image, POLICY)
    SCAN.write(image.id, scan_with("sha256:1", "CVE-2026-3"))
    with pytest.raises(RefusedError, match="refuses 1 critical: CVE-2026-3 in libexample1"):
        approved(image, POLICY)
    SCAN.write(image.id, scan_with("sha256:1", "CVE-2026-1"))
    assert [decision.outcome for decision in approved(image, POLICY)[0].decisions] == ["accepted"]


def test_the_scan_is_attached_and_read_back(image: Image, remote: tuple[Repository, Oci]) -> None:
    repository, registry = remote
    manifest = put_image(repository, image)
    repository.put_manifest("v1", manifest)
    item = scanned_item(image, manifest.digest, "CVE-2026-1")
    documents = {artifact.predicate_type: artifact for artifact in make_artifacts(item)}
    assert json.loads(documents[VULNERABILITIES].content)["predicateType"] == VULNERABILITIES
    attach(make_artifacts(item), manifest.descriptor, repository)
    (verification,) = verify(f"{repository.ref}:v1", registry, None)
    details = {finding.check: finding.detail for finding in verification.findings}
    assert verification.holds
    assert details["vulnerabilities"].startswith("1 critical (1 accepted); scanned 20")
    assert details["vulnerabilities"].endswith("by trivy 0.74.0")


def test_a_refused_vulnerability_that_is_attached_fails(image: Image, remote: tuple[Repository, Oci]) -> None:
    repository, registry = remote
    manifest = put_image(repository, image)
    repository.put_manifest("v1", manifest)
    attach(make_artifacts(scanned_item(image, manifest.digest, "CVE-2026-9")), manifest.descriptor, repository)
    (verification,) = verify(f"{repository.ref}:v1", registry, None)
    assert [finding.check for finding in verification.findings if finding.holds is False] == ["vulnerabilities"]


def test_a_published_image_is_found_for_a_scan(image: Image, remote: tuple[Repository, Oci]) -> None:
    repository, registry = remote
    manifest = put_image(repository, image)
    repository.put_manifest("latest", manifest)
    (found,) = published_images([image], [image], matrix.load(), {"team": registry})
    assert found.by_digest == f"{repository.ref}@{manifest.digest}"
