"""What anybody can read back of a published image."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.bill import cyclonedx_bill
from rdma_images.core import paths
from rdma_images.core.pipeline import Image
from rdma_images.plan import matrix, planner
from rdma_images.publish import statement
from rdma_images.publish.attach import CREATED, FORM, Artifact, attach
from rdma_images.publish.destination import open_destination
from rdma_images.publish.keys import Signer
from rdma_images.publish.signing import ImageSigner
from rdma_images.publish.verify import Verification, verify
from rdma_images.registry import faults
from rdma_images.registry.client import OCI_INDEX, OCI_MANIFEST, Manifest, Repository, canonical
from rdma_images.registry.http import Connection
from rdma_images.registry.registries import Oci
from tests.support.case_parts import GREEN
from tests.support.publish_doubles import Store, served
from tests.support.published_image import RED, index_of, item_of, made, put_image


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")


@pytest.fixture
def image() -> Image:
    (made,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return made


class TestVerify:
    @pytest.fixture
    def place(self, image: Image) -> Iterator[tuple[Repository, Manifest, Oci]]:
        store = Store()
        with served(store.handler()) as host:
            there = Repository(Connection(host, lambda: None), "training/efa-pytorch")
            manifest = put_image(there, image)
            there.put_manifest("v1", manifest)
            yield there, manifest, Oci(kind="oci", host=host, credentials="none")

    def look(self, place: tuple[Repository, Manifest, Oci]) -> tuple[Verification, ...]:
        there, _, entry = place
        return verify(f"{there.ref}:v1", entry, None)

    def test_a_validated_image_holds(self, place: tuple[Repository, Manifest, Oci], image: Image) -> None:
        there, manifest, _ = place
        attach(made(item_of(image, manifest.digest)), manifest.descriptor, there)
        (found,) = self.look(place)
        assert found.holds
        assert {one.what: one.holds for one in found.findings} == {
            "signature": None,
            "report": True,
            "provenance": True,
            "bill of materials": True,
            "SPDX": True,
        }

    def test_an_image_without_evidence_does_not(self, place: tuple[Repository, Manifest, Oci]) -> None:
        (found,) = self.look(place)
        assert not found.holds

    def test_a_red_report_does_not_unless_it_was_allowed(
        self, place: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        there, manifest, _ = place
        attach(made(item_of(image, manifest.digest, GREEN, RED)), manifest.descriptor, there)
        assert not self.look(place)[0].holds
        attach(made(item_of(image, manifest.digest, GREEN, RED, allowed=["plugin.found"])), manifest.descriptor, there)
        assert any(
            "failed and allowed by the publisher: plugin.found" in one.detail for one in self.look(place)[0].findings
        )

    def test_the_evidence_of_another_image_does_not(
        self, place: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        there, manifest, _ = place
        attach(made(item_of(image, "sha256:" + "9" * 64)), manifest.descriptor, there)
        (found,) = self.look(place)
        assert [one.what for one in found.findings if one.holds is False] == [
            "report",
            "provenance",
            "bill of materials",
            "SPDX",
        ]

    @pytest.mark.parametrize(
        "content", [b"", b"[]", b'{"predicateType": "x"}', b'{"subject": 3, "predicate": {}}', b"\xff"]
    )
    def test_whatever_somebody_attached_is_an_answer(
        self, place: tuple[Repository, Manifest, Oci], content: bytes
    ) -> None:
        there, manifest, _ = place
        forms = (statement.REPORT, statement.PROVENANCE, cyclonedx_bill.PREDICATE)
        files = [Artifact("application/x", "x", content, "now", form) for form in forms]
        attach(files, manifest.descriptor, there)
        (found,) = self.look(place)
        assert [one.detail.partition(":")[0] for one in found.findings[1:]] == ["cannot be read"] * 3

    def test_what_other_tools_attached_is_left_alone(
        self, place: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        there, manifest, _ = place
        other = Artifact(cyclonedx_bill.CYCLONEDX, "other.json", b"{}", "2030-01-01T00:00:00+00:00")
        attach([*made(item_of(image, manifest.digest)), other], manifest.descriptor, there)
        assert self.look(place)[0].holds

    def test_every_platform_of_an_index_is_looked_at(
        self, place: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        there, manifest, entry = place
        attach(made(item_of(image, manifest.digest)), manifest.descriptor, there)
        index = index_of((manifest, "amd64"))
        there.put_manifest("joint", index)
        whole, found = verify(f"{there.ref}:joint", entry, None)
        assert whole.ref.endswith(index.digest)
        assert {one.what: (one.holds, one.detail) for one in whole.findings}["platforms"] == (True, "linux/amd64")
        assert whole.holds
        assert found.ref.endswith(manifest.digest)
        assert found.holds

    def test_an_index_of_nothing_does_not_hold(self, place: tuple[Repository, Manifest, Oci]) -> None:
        there, _, entry = place
        there.put_manifest("joint", index_of())
        (found,) = verify(f"{there.ref}:joint", entry, None)
        assert not found.holds
        assert found.findings[-1].detail == "none: the index lists no image"

    def test_an_index_that_calls_an_image_by_another_platform_does_not_hold(
        self, place: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        there, manifest, entry = place
        attach(made(item_of(image, manifest.digest)), manifest.descriptor, there)
        there.put_manifest("joint", index_of((manifest, "arm64")))
        whole, found = verify(f"{there.ref}:joint", entry, None)
        assert found.holds
        assert not whole.holds
        assert "as linux/arm64, but it is linux/amd64" in whole.findings[-1].detail

    def test_a_tag_that_says_another_version_does_not_hold(
        self, place: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        there, manifest, entry = place
        attach(made(item_of(image, manifest.digest)), manifest.descriptor, there)
        lie = image.tag.replace(image.version("nccl"), "2.99.0")
        for tag in (image.tag, lie):
            there.put_manifest(tag, manifest)
        (good,) = verify(f"{there.ref}:{image.tag}", entry, None)
        (bad,) = verify(f"{there.ref}:{lie}", entry, None)
        assert good.holds
        assert [one.what for one in bad.findings if one.holds is False] == ["tag"]

    @pytest.mark.parametrize("revision", ["b" * 40 + "-dirty", "unknown", ""])
    def test_what_no_commit_has_does_not_hold_unless_it_was_allowed(
        self, revision: str, place: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        there, manifest, _ = place
        attach(made(item_of(image, manifest.digest), revision), manifest.descriptor, there)
        (found,) = [one for one in self.look(place)[0].findings if one.what == "provenance"]
        assert found.holds is False
        assert "and uncommitted files" in found.detail
        allowed = item_of(image, manifest.digest, allowed=["source.committed"])
        attach(made(allowed, revision), manifest.descriptor, there)
        assert self.look(place)[0].holds

    @pytest.mark.parametrize(
        "body",
        [
            {"layers": []},
            {},
            {"layers": "x"},
            {"layers": [3]},
            {"layers": [{"digest": "../../x"}]},
            {"layers": [{"digest": f"sha256:{'7' * 64}"}]},
        ],
    )
    def test_an_attachment_that_cannot_be_read_is_ignored_and_reported(
        self, body: dict[str, str | list[int | dict[str, str]]], place: tuple[Repository, Manifest, Oci], image: Image
    ) -> None:
        there, manifest, entry = place
        attach(made(item_of(image, manifest.digest)), manifest.descriptor, there)
        says = {"subject": manifest.descriptor.as_json(), "annotations": {FORM: statement.REPORT, CREATED: "2030"}}
        odd = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "mediaType": OCI_MANIFEST, **says, **body}))
        there.put_manifest(odd.digest, odd)
        (found,) = self.look(place)
        assert found.holds
        assert any(one.what == "report" and one.holds is None and odd.digest in one.detail for one in found.findings)
        here = open_destination("here", entry)
        image_signer = ImageSigner(Signer("k"), here, there, manifest.digest, lambda _: None)
        assert not image_signer.is_trusted(odd.descriptor, Artifact("t", "report.json", b"{}", "now", statement.REPORT))


@pytest.mark.parametrize("raw", [b"", b"[]", b"<html>", b'{"manifests": {"a": 1}}', b'{"manifests": [{}]}', b"\xff"])
def test_a_manifest_that_is_none_is_a_sentence(raw: bytes) -> None:
    store = Store()
    store.manifests["odd"] = (OCI_INDEX, raw)
    with served(store.handler()) as host, pytest.raises(faults.MalformedError):
        verify(f"{host}/a/b:odd", Oci(kind="oci", host=host, credentials="none"), None)
