"""What is attached to an image, and what anybody can read back of it."""

import dataclasses
import json
import re

import pytest
from publish_doubles import Store, served
from test_tags import report_of

from rdma_images import facts, matrix, paths, plan
from rdma_images.ci import summary
from rdma_images.errors import RdmaImagesError, RefusedError
from rdma_images.model import Build, Check, Report
from rdma_images.publish import cosign, faults, keys, sbom, statement
from rdma_images.publish.attach import CREATED, FORM, Artifact, attach
from rdma_images.publish.client import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, Repository, canonical
from rdma_images.publish.destination import destination
from rdma_images.publish.gate import Passed
from rdma_images.publish.http import Connection
from rdma_images.publish.item import Item, artifacts
from rdma_images.publish.keys import Signer
from rdma_images.publish.registries import Oci
from rdma_images.publish.seal import Seal
from rdma_images.publish.tags import Tags
from rdma_images.publish.verify import split, verify

GREEN = Check("nccl.single", "one libnccl is in the image", "static", "error", "passed")
RED = Check("plugin.found", "the plugin is found", "static", "error", "failed")
PACKAGES = {
    "wheels": {"/opt/venv": {"torch": "2.15.0"}, "/usr/lib/python3/dist-packages": {"torch": "2.15.0", "pip": "26.0"}},
    "dpkg": {"libc6": "2.41-12+deb13u1"},
}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")


@pytest.fixture
def image():
    (made,) = plan.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return made


def proven(image, digest, *checks):
    found = report_of(image)
    measured = {"measured": found.facts["measured"] | {"packages": PACKAGES}}
    return dataclasses.replace(found, digest=digest, checks=checks or (GREEN,), facts=measured)


def item_of(image, digest, *checks, allowed=()):
    by = {"buildx": "0.13", "docker": "26.1"}
    build = Build(image.id, "r", digest, "sha256:2", (), "2026-11-21T08:00:00+00:00", 1.0, builder=by)
    return Item(image, build, proven(image, digest, *checks), Tags(image.tag), Passed(tuple(allowed)), {})


def made(item, revision="a" * 40):
    return artifacts(item, {"org.opencontainers.image.revision": revision})


class TestBill:
    def test_every_package_is_in_it_once_with_its_address(self, image):
        body = json.loads(sbom.sbom("efa-pytorch", proven(image, "sha256:1")))
        assert body["bomFormat"] == "CycloneDX"
        assert {one["purl"] for one in body["components"]} == {
            "pkg:pypi/torch@2.15.0",
            "pkg:pypi/pip@26.0",
            "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?distro=debian-13",
        }

    def test_the_same_image_has_the_same_bytes(self, image):
        assert sbom.sbom("t", proven(image, "sha256:1")) == sbom.sbom("t", proven(image, "sha256:1"))
        assert sbom.sbom("t", proven(image, "sha256:1")) != sbom.sbom("t", proven(image, "sha256:2"))

    def test_nothing_measured_is_no_empty_bill(self, image):
        with pytest.raises(RdmaImagesError, match="has measured no packages"):
            sbom.sbom("t", dataclasses.replace(report_of(image), facts={}))


def test_statements_name_their_subject_and_forms(image):
    provenance, _, proof = (json.loads(one.content) for one in made(item_of(image, "sha256:ab")))
    assert provenance["subject"] == [{"name": "efa-pytorch", "digest": {"sha256": "ab"}}]
    assert provenance["predicateType"] == "https://slsa.dev/provenance/v1"
    assert provenance["predicate"]["runDetails"]["builder"]["version"] == {"docker": "26.1", "buildx": "0.13"}
    assert proof["predicate"]["report"]["digest"] == "sha256:ab"


def test_the_builders_own_record_goes_along_when_it_is_of_this_image(image):
    item = item_of(image, "sha256:ab")
    kept = paths.image_folder(image.id) / "buildkit.json"
    record = {
        "digest": "sha256:ab",
        "predicate_type": "https://slsa.dev/provenance/v0.2",
        "predicate": {"buildType": "b"},
    }
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(record))
    _, told, *_ = made(item)
    assert told.title == "buildkit.json"
    assert json.loads(told.content)["predicate"] == {"buildType": "b"}
    assert told.form != statement.PROVENANCE, "cosign keeps one statement of a type"
    kept.write_text(json.dumps(record | {"digest": "sha256:cd"}))
    assert "buildkit.json" not in [one.title for one in made(item)]


def test_artifacts_are_made_once_an_image(image):
    item = item_of(image, "sha256:ab")
    first = made(item)
    assert artifacts(item, {}) == first, "it is written down"


def put_image(there, image, platform="linux/amd64", **more):
    """An image without layers that says what `image` is; its manifest, which the registry has by digest."""
    system, _, architecture = platform.partition("/")
    labels = {"org.opencontainers.image.version": image.tag}
    config = {"os": system, "architecture": architecture, "config": {"Labels": labels}, **more}
    digest = there.put_blob(canonical(config))
    body = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": {"digest": digest}, "layers": []}
    manifest = Manifest(OCI_MANIFEST, canonical(body))
    there.put_manifest(manifest.digest, manifest)
    return manifest


def index_of(*members):
    """An index over manifests, each with the platform that it is said to be for."""
    entries = [
        Descriptor(OCI_MANIFEST, one.digest, len(one.raw), platform={"os": "linux", "architecture": name}).as_json()
        for one, name in members
    ]
    return Manifest(OCI_INDEX, canonical({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}))


class TestVerify:
    @pytest.fixture
    def place(self, image):
        store = Store()
        with served(store.handler()) as host:
            there = Repository(Connection(host, lambda: None), "training/efa-pytorch")
            manifest = put_image(there, image)
            there.put_manifest("v1", manifest)
            yield there, manifest, Oci(kind="oci", host=host, credentials="none")

    def look(self, place):
        there, _, entry = place
        return verify(f"{there.ref}:v1", entry, None)

    def test_a_proven_image_holds(self, place, image):
        there, manifest, _ = place
        attach(made(item_of(image, manifest.digest)), manifest.descriptor, there)
        (found,) = self.look(place)
        assert found.holds
        assert {one.what: one.holds for one in found.findings} == {
            "signature": None,
            "report": True,
            "provenance": True,
            "bill of materials": True,
        }

    def test_an_image_without_proof_does_not(self, place):
        (found,) = self.look(place)
        assert not found.holds

    def test_a_red_report_does_not_unless_it_was_allowed(self, place, image):
        there, manifest, _ = place
        attach(made(item_of(image, manifest.digest, GREEN, RED)), manifest.descriptor, there)
        assert not self.look(place)[0].holds
        attach(made(item_of(image, manifest.digest, GREEN, RED, allowed=["plugin.found"])), manifest.descriptor, there)
        assert any("allowed red by the publisher: plugin.found" in one.detail for one in self.look(place)[0].findings)

    def test_the_proof_of_another_image_does_not(self, place, image):
        there, manifest, _ = place
        attach(made(item_of(image, "sha256:" + "9" * 64)), manifest.descriptor, there)
        (found,) = self.look(place)
        assert [one.what for one in found.findings if one.holds is False] == [
            "report",
            "provenance",
            "bill of materials",
        ]

    @pytest.mark.parametrize(
        "content", [b"", b"[]", b'{"predicateType": "x"}', b'{"subject": 3, "predicate": {}}', b"\xff"]
    )
    def test_whatever_somebody_attached_is_an_answer(self, place, content):
        there, manifest, _ = place
        forms = (statement.REPORT, statement.PROVENANCE, sbom.PREDICATE)
        files = [Artifact("application/x", "x", content, "now", form) for form in forms]
        attach(files, manifest.descriptor, there)
        (found,) = self.look(place)
        assert [one.detail.partition(":")[0] for one in found.findings[1:]] == ["cannot be read"] * 3

    def test_what_other_tools_attached_is_left_alone(self, place, image):
        there, manifest, _ = place
        other = Artifact(sbom.CYCLONEDX, "other.json", b"{}", "2030-01-01T00:00:00+00:00")
        attach([*made(item_of(image, manifest.digest)), other], manifest.descriptor, there)
        assert self.look(place)[0].holds

    def test_every_platform_of_an_index_is_looked_at(self, place, image):
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

    def test_an_index_of_nothing_does_not_hold(self, place):
        there, _, entry = place
        there.put_manifest("joint", index_of())
        (found,) = verify(f"{there.ref}:joint", entry, None)
        assert not found.holds
        assert found.findings[-1].detail == "there is none: the index lists no image"

    def test_an_index_that_calls_an_image_by_another_platform_does_not_hold(self, place, image):
        there, manifest, entry = place
        attach(made(item_of(image, manifest.digest)), manifest.descriptor, there)
        there.put_manifest("joint", index_of((manifest, "arm64")))
        whole, found = verify(f"{there.ref}:joint", entry, None)
        assert found.holds
        assert not whole.holds
        assert "as linux/arm64, but it is linux/amd64" in whole.findings[-1].detail

    def test_a_tag_that_says_another_version_does_not_hold(self, place, image):
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
    def test_what_no_commit_has_does_not_hold_unless_it_was_allowed(self, revision, place, image):
        there, manifest, _ = place
        attach(made(item_of(image, manifest.digest), revision), manifest.descriptor, there)
        (told,) = [one for one in self.look(place)[0].findings if one.what == "provenance"]
        assert told.holds is False
        assert "and what was not committed" in told.detail
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
    def test_an_attachment_that_cannot_be_read_is_passed_over_and_told(self, body, place, image):
        there, manifest, entry = place
        attach(made(item_of(image, manifest.digest)), manifest.descriptor, there)
        says = {"subject": manifest.descriptor.as_json(), "annotations": {FORM: statement.REPORT, CREATED: "2030"}}
        odd = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "mediaType": OCI_MANIFEST, **says, **body}))
        there.put_manifest(odd.digest, odd)
        (found,) = self.look(place)
        assert found.holds
        assert any(one.what == "report" and one.holds is None and odd.digest in one.detail for one in found.findings)
        here = destination("here", entry)
        seal = Seal(Signer("k"), here, there, manifest.digest, lambda _: None)
        assert not seal.believes(odd.descriptor, Artifact("t", "report.json", b"{}", "now", statement.REPORT))


@pytest.mark.parametrize("raw", [b"", b"[]", b"<html>", b'{"manifests": {"a": 1}}', b'{"manifests": [{}]}', b"\xff"])
def test_a_manifest_that_is_none_is_a_sentence(raw):
    store = Store()
    store.manifests["odd"] = (OCI_INDEX, raw)
    with served(store.handler()) as host, pytest.raises(faults.MalformedError):
        verify(f"{host}/a/b:odd", Oci(kind="oci", host=host, credentials="none"), None)


@pytest.mark.parametrize(
    ("ref", "parts"),
    [
        ("h.example/a/b:v1", ("h.example", "a/b", "v1")),
        ("127.0.0.1:5000/a", ("127.0.0.1:5000", "a", "latest")),
        ("localhost/a@sha256:1", ("localhost", "a", "sha256:1")),
        ("h.example/a:v1@sha256:1", ("h.example", "a", "sha256:1")),
    ],
)
def test_references_are_split(ref, parts):
    assert split(ref) == parts


@pytest.mark.parametrize("ref", ["efa-pytorch:latest", "training/efa-pytorch", "x"])
def test_a_reference_without_a_registry_is_refused(ref):
    with pytest.raises(RefusedError, match="names no registry"):
        split(ref)


class TestTrust:
    def test_nobody(self):
        assert keys.trust("", "", "") is None

    def test_half_an_identity_and_both_are_refused(self):
        with pytest.raises(RefusedError, match="belong together"):
            keys.trust("", "ci@example.com", "")
        with pytest.raises(RefusedError, match="exclude each other"):
            keys.trust("k.pub", "ci@example.com", "https://issuer.example")

    def test_a_key_file_that_is_not_there_is_refused_first(self, tmp_path):
        with pytest.raises(RefusedError, match=r"--key .*none\.pub: no such file"):
            keys.trust(str(tmp_path / "none.pub"), "", "")
        with pytest.raises(RefusedError, match=r"--sign .*none\.key: no such file"):
            keys.signer(str(tmp_path / "none.key"))
        assert keys.trust("awskms:///alias/x", "", "") == keys.Trust(key="awskms:///alias/x")
        assert keys.signer("keyless") == keys.Signer("keyless")
        assert keys.signer("") is None

    def test_a_keyless_signer_knows_itself_in_a_ci_job(self):
        job = {"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "team/images"}
        own = keys.own_identity(job | {"GITHUB_REF": "refs/heads/main"})
        here = "https://github.com/team/images/.github/workflows/image.yml@refs/heads/main"
        assert re.search(own.identity, here)
        for other in (
            here.replace("main", "mainly"),
            here.replace("team", "teem"),
            here.replace("github.com", "githubxcom"),
        ):
            assert not re.search(own.identity, other)
        assert keys.own_identity(job) is None
        assert keys.own_identity({}) is None

    # cosign 2.5's words.
    @pytest.mark.parametrize(
        ("verb", "output", "kind"),
        [
            (
                "verify",
                "Error: no signatures found\nerror during command execution: no signatures found",
                "_NothingFound",
            ),
            ("verify", "Error: no matching signatures: invalid signature when validating", "_NothingFound"),
            ("verify-attestation", "Error: none of the attestations matched the predicate type: u", "_NothingFound"),
            ("sign", "Error: signing [r]: getting signer: reading key: decrypt: encrypted", "UnauthorizedError"),
            ("sign", "Error: signing [r]: PUT http://h/v2/: connection refused", "BusyError"),
            ("sign", "Error: something else", "PublishError"),
        ],
    )
    def test_its_complaints_are_told_apart(self, verb, output, kind):
        assert type(cosign._fault(verb, "r", output)).__name__ == kind


def test_the_summary_has_a_row_for_each_image(image):
    folder = paths.image_folder(image.id)
    folder.mkdir(parents=True)
    item = item_of(image, "sha256:" + "a" * 64, GREEN, RED)
    (folder / "build.json").write_text(json.dumps(dataclasses.asdict(item.build)))
    (folder / "report.json").write_text(json.dumps(dataclasses.asdict(item.report)))
    text = summary.summary()
    assert text.startswith("| image | build | checks | published |")
    assert f"| {image.id} | 1 s<br>`sha256:{'a' * 12}` | **red**: 1 passed, 1 failed | no |" in text


def test_a_report_is_what_it_was_after_the_round_trip(image):
    found = proven(image, "sha256:ab")
    back = statement.predicate(statement.statement("t", "sha256:ab", statement.REPORT, statement.report(found, ())))
    assert Report(**{**back["report"], "rehearsal": (), "checks": (GREEN,)}).facts == found.facts
