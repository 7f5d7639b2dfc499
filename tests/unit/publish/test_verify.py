"""What anybody can read back of a published image."""

from collections.abc import Iterator

import pytest

from rdma_images.core.image import Image
from rdma_images.publish import statement
from rdma_images.publish.attach import CREATED, PREDICATE_TYPE, Artifact, attach
from rdma_images.publish.destination import open_destination
from rdma_images.publish.evidence import bill
from rdma_images.publish.keys import Signer
from rdma_images.publish.signing import ImageSigner
from rdma_images.publish.verify import Verification, verify
from rdma_images.registry.client import OCI_MANIFEST, Manifest, Repository, canonical
from rdma_images.registry.connection import Connection
from rdma_images.registry.registries import Oci
from tests.support.case_parts import GREEN
from tests.support.publish_doubles import Store, served
from tests.support.published_image import RED, approve, make_artifacts, make_index, put_image

pytestmark = pytest.mark.usefixtures("folders")


class TestVerify:
    @pytest.fixture
    def published(self, image: Image) -> Iterator[tuple[Repository, Manifest, Oci]]:
        store = Store()
        with served(store.handler()) as host:
            repository = Repository(Connection(host, lambda: None), "training/efa-pytorch")
            manifest = put_image(repository, image)
            repository.put_manifest("v1", manifest)
            yield repository, manifest, Oci(kind="oci", host=host, credentials="none")

    def verify_published(self, published: tuple[Repository, Manifest, Oci]) -> tuple[Verification, ...]:
        repository, _, entry = published
        return verify(f"{repository.ref}:v1", entry, None)

    @pytest.mark.parametrize("is_own", [True, False])
    def test_an_image_holds_by_its_own_evidence(
        self, published: tuple[Repository, Manifest, Oci], image: Image, is_own: bool
    ) -> None:
        repository, manifest, _ = published
        digest = manifest.digest if is_own else f"sha256:{'9' * 64}"
        attach(make_artifacts(approve(image, digest)), manifest.descriptor, repository)
        (verification,) = self.verify_published(published)
        found = {finding.check: finding.holds for finding in verification.findings}
        assert found == {"signature": None, "report": is_own, "provenance": is_own, "bill of materials": is_own}
        assert verification.holds == is_own

    def test_an_image_without_evidence_does_not(self, published: tuple[Repository, Manifest, Oci]) -> None:
        (verification,) = self.verify_published(published)
        assert not verification.holds

    def test_a_red_report_does_not_unless_it_was_allowed(
        self, published: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        repository, manifest, _ = published
        attach(make_artifacts(approve(image, manifest.digest, GREEN, RED)), manifest.descriptor, repository)
        assert not self.verify_published(published)[0].holds
        attach(
            make_artifacts(approve(image, manifest.digest, GREEN, RED, allowed=["plugin.found"])),
            manifest.descriptor,
            repository,
        )
        assert any(
            "failed and allowed by the publisher: plugin.found" in finding.detail
            for finding in self.verify_published(published)[0].findings
        )

    @pytest.mark.parametrize(
        "content", [b"", b"[]", b'{"predicateType": "x"}', b'{"subject": 3, "predicate": {}}', b"\xff"]
    )
    def test_whatever_somebody_attached_is_an_answer(
        self, published: tuple[Repository, Manifest, Oci], content: bytes
    ) -> None:
        repository, manifest, _ = published
        forms = (statement.REPORT, statement.PROVENANCE, bill.PREDICATE)
        files = [Artifact("application/x", "x", content, "now", form) for form in forms]
        attach(files, manifest.descriptor, repository)
        (verification,) = self.verify_published(published)
        assert [finding.detail.partition(":")[0] for finding in verification.findings[1:]] == ["cannot be read"] * 3

    def test_what_other_tools_attached_is_left_alone(
        self, published: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        repository, manifest, _ = published
        other = Artifact(bill.CYCLONEDX, "other.json", b"{}", "2030-01-01T00:00:00+00:00")
        attach([*make_artifacts(approve(image, manifest.digest)), other], manifest.descriptor, repository)
        assert self.verify_published(published)[0].holds

    def test_every_platform_of_an_index_is_looked_at(
        self, published: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        repository, manifest, entry = published
        attach(make_artifacts(approve(image, manifest.digest)), manifest.descriptor, repository)
        index = make_index((manifest, "amd64"))
        repository.put_manifest("joint", index)
        whole, verification = verify(f"{repository.ref}:joint", entry, None)
        assert whole.ref.endswith(index.digest)
        assert {finding.check: (finding.holds, finding.detail) for finding in whole.findings}["platforms"] == (
            True,
            "linux/amd64",
        )
        assert whole.holds
        assert verification.ref.endswith(manifest.digest)
        assert verification.holds

    def test_an_index_of_nothing_does_not_hold(self, published: tuple[Repository, Manifest, Oci]) -> None:
        repository, _, entry = published
        repository.put_manifest("joint", make_index())
        (verification,) = verify(f"{repository.ref}:joint", entry, None)
        assert not verification.holds
        assert verification.findings[-1].detail == "none: the index lists no image"

    def test_an_index_that_calls_an_image_by_another_platform_does_not_hold(
        self, published: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        repository, manifest, entry = published
        attach(make_artifacts(approve(image, manifest.digest)), manifest.descriptor, repository)
        repository.put_manifest("joint", make_index((manifest, "arm64")))
        whole, verification = verify(f"{repository.ref}:joint", entry, None)
        assert verification.holds
        assert not whole.holds
        assert "as linux/arm64, but it is linux/amd64" in whole.findings[-1].detail

    @pytest.mark.parametrize("revision", ["b" * 40 + "-dirty", "unknown", ""])
    def test_what_no_commit_has_does_not_hold_unless_it_was_allowed(
        self, revision: str, published: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        repository, manifest, _ = published
        attach(make_artifacts(approve(image, manifest.digest), revision), manifest.descriptor, repository)
        (verification,) = [
            finding for finding in self.verify_published(published)[0].findings if finding.check == "provenance"
        ]
        assert verification.holds is False
        assert "and uncommitted files" in verification.detail
        allowed = approve(image, manifest.digest, allowed=["source.committed"])
        attach(make_artifacts(allowed, revision), manifest.descriptor, repository)
        assert self.verify_published(published)[0].holds

    ODD_LAYERS: tuple[object, ...] = ([], "x", [3], [{"digest": "../../x"}], [{"digest": f"sha256:{'7' * 64}"}])

    @pytest.mark.parametrize("body", [{}, *({"layers": layers} for layers in ODD_LAYERS)])
    def test_an_attachment_that_cannot_be_read_is_ignored_and_reported(
        self,
        body: dict[str, str | list[int | dict[str, str]]],
        published: tuple[Repository, Manifest, Oci],
        image: Image,
    ) -> None:
        repository, manifest, entry = published
        attach(make_artifacts(approve(image, manifest.digest)), manifest.descriptor, repository)
        document = {
            "subject": manifest.descriptor.as_json(),
            "annotations": {PREDICATE_TYPE: statement.REPORT, CREATED: "2030"},
        }
        odd = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "mediaType": OCI_MANIFEST, **document, **body}))
        repository.put_manifest(odd.digest, odd)
        (verification,) = self.verify_published(published)
        assert verification.holds
        assert any(
            finding.check == "report" and finding.holds is None and odd.digest in finding.detail
            for finding in verification.findings
        )
        destination = open_destination("here", entry)
        image_signer = ImageSigner(Signer("k"), destination, repository, manifest.digest, lambda _: None)
        assert not image_signer.is_trusted(odd.descriptor, Artifact("t", "report.json", b"{}", "now", statement.REPORT))
