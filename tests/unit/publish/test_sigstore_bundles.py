"""Keyless signatures: bundles of the public Sigstore, and of one of the tests."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("sigstore", reason="the extra `keyless` is not installed")

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.publish import sigstore_bundles, statement
from rdma_images.publish.attach import Artifact, attach
from rdma_images.publish.attachment_checks import VerifyFinding
from rdma_images.publish.keys import Trust
from rdma_images.publish.origin_policy import check_origin
from rdma_images.publish.sigstore_bundles import Bundles, checker
from rdma_images.publish.verify import verify
from rdma_images.registry.client import Manifest, Repository
from rdma_images.registry.connection import Connection
from rdma_images.registry.registries import Oci
from rdma_images.scan.policy import OriginRules
from tests.support.publish_doubles import Store, served
from tests.support.published_image import approve, make_artifacts, put_image
from tests.support.sigstore_parts import IDENTITY, ISSUER, Sigstore

PUBLIC = paths.PROJECT / "tests" / "data" / "sigstore"
GENERATOR = "https://github.com/slsa-framework/slsa-github-generator/.github/workflows/generator_generic_slsa3.yml"
GENERATED = "sha256:2892146b063a94cb4a4318c0e98d38af12dcf2b1e29237486b58463b59607bbd"
ATTESTED = "sha256:a0cfc71271d6e278e57cd332ff957c3f7043fdda354c4cbb190a30d56efa01bf"
DIGEST = f"sha256:{'a' * 64}"
TEAM = "^https://github.com/team/images/"


def provenance(digest: str, builder: str = IDENTITY, source: str = "https://github.com/team/images") -> bytes:
    """Return a provenance as GitHub's attestations have it."""
    definition = {
        "buildType": "https://actions.github.io/buildtypes/workflow/v1",
        "externalParameters": {"workflow": {"repository": source}},
        "resolvedDependencies": [{"uri": f"git+{source}@refs/heads/main", "digest": {"gitCommit": "c" * 40}}],
    }
    predicate = {"buildDefinition": definition, "runDetails": {"builder": {"id": builder}}}
    return statement.statement("images", digest, statement.PROVENANCE, predicate)


class TestPublic:
    """Bundles of the public Sigstore, checked with sigstore-python's root."""

    def test_the_provenance_of_slsas_generator_counts(self) -> None:
        content = (PUBLIC / "slsa-generator.json").read_bytes()
        signed = checker(Trust(identity=f"^{GENERATOR}@", issuer=ISSUER))(content, GENERATED)
        assert signed.signer == f"{GENERATOR}@refs/heads/main"
        rules = OriginRules(builders=(GENERATOR,), sources=("github.com/slsa-framework/example-package",))
        findings = {finding.check: finding.holds for finding in check_origin(None, rules, False, Bundles([signed]))}
        assert findings == {"builder": True, "source": True}

    def test_a_builder_that_did_not_sign_is_none(self) -> None:
        content = (PUBLIC / "github-attestation.json").read_bytes()
        signed = checker(Trust(identity="^https://github.com/sigstore-conformance/", issuer=ISSUER))(content, ATTESTED)
        builder = "https://github.com/loosebazooka/aa-test/.github/workflows/provenance.yaml@refs/heads/main"
        findings = list(check_origin(None, OriginRules(builders=(builder,)), False, Bundles([signed])))
        assert findings[0].holds is False
        assert findings[0].detail.startswith(f"the provenance names the builder {builder}, and is signed by https://")

    @pytest.mark.parametrize(
        ("trust", "digest", "message"),
        [
            (
                Trust(identity="^https://github.com/team/", issuer=ISSUER),
                GENERATED,
                "signed by https://github.com/slsa",
            ),
            (Trust(identity=GENERATOR, issuer="https://gitlab.com"), GENERATED, "for whom another issuer vouches than"),
            (Trust(identity=GENERATOR, issuer=ISSUER), ATTESTED, "is about 2892146b063a"),
        ],
    )
    def test_another_identity_issuer_or_digest_is_refused(self, trust: Trust, digest: str, message: str) -> None:
        content = (PUBLIC / "slsa-generator.json").read_bytes()
        with pytest.raises(sigstore_bundles.BundleError, match=message) as caught:
            checker(trust)(content, digest)
        assert "\n" not in str(caught.value)

    def test_a_statement_that_was_changed_is_refused(self) -> None:
        body = json.loads((PUBLIC / "slsa-generator.json").read_bytes())
        payload = body["dsseEnvelope"]["payload"]
        body["dsseEnvelope"]["payload"] = payload[:40] + ("A" if payload[40] != "A" else "B") + payload[41:]
        with pytest.raises(sigstore_bundles.BundleError, match="invalid signature"):
            checker(Trust(identity=GENERATOR, issuer=ISSUER))(json.dumps(body).encode(), GENERATED)


@pytest.fixture(scope="module")
def sigstore() -> Sigstore:
    return Sigstore()


@pytest.fixture
def root(sigstore: Sigstore, tmp_path: Path) -> str:
    return str(sigstore.write_root(tmp_path / "trusted_root.json"))


def test_a_certificate_that_had_ended_is_refused(sigstore: Sigstore, root: str) -> None:
    content = sigstore.bundle(provenance(DIGEST), late=timedelta(minutes=11))
    with pytest.raises(sigstore_bundles.BundleError, match="was not valid when it signed"):
        checker(Trust(identity=TEAM, issuer=ISSUER, root=root))(content, DIGEST)


def test_a_certificate_of_another_sigstore_is_refused(sigstore: Sigstore) -> None:
    with pytest.raises(sigstore_bundles.BundleError, match="does not lead to the trusted root"):
        checker(Trust(identity=TEAM, issuer=ISSUER))(sigstore.bundle(provenance(DIGEST)), DIGEST)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"{" * 10_000, b'{"mediaType": "x"}', b"\xff"])
def test_what_is_no_bundle_is_refused(content: bytes) -> None:
    with pytest.raises(sigstore_bundles.BundleError, match="is no bundle"):
        checker(Trust(identity=TEAM, issuer=ISSUER))(content, DIGEST)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"mediaType": "x", "tlogs": []}'])
def test_a_root_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "root.json"
    file.write_text(text)
    for name in (str(file), str(tmp_path / "missing.json")):
        with pytest.raises(RefusedError, match="cannot be read"):
            checker(Trust(identity=TEAM, issuer=ISSUER, root=name))


class TestVerify:
    """`verify --policy` of an image that carries our evidence, and bundles."""

    @pytest.fixture
    def published(self, image: Image) -> Iterator[tuple[Repository, Manifest, Oci]]:
        store = Store()
        with served(store.handler()) as host:
            repository = Repository(Connection(host, lambda: None), "training/efa-pytorch")
            manifest = put_image(repository, image)
            repository.put_manifest("v1", manifest)
            attach(make_artifacts(approve(image, manifest.digest)), manifest.descriptor, repository)
            yield repository, manifest, Oci(kind="oci", host=host, credentials="none")

    @pytest.fixture
    def findings(
        self, published: tuple[Repository, Manifest, Oci], root: str
    ) -> Callable[..., dict[str, VerifyFinding]]:
        repository, manifest, entry = published

        def attach_and_verify(*bundles: bytes, rules: OriginRules, identity: str = TEAM) -> dict[str, VerifyFinding]:
            media_type = f"{sigstore_bundles.BUNDLE}.v0.3+json"
            artifacts = [Artifact(media_type, "bundle", content, "2026-11-24T00:00:00Z") for content in bundles]
            attach(artifacts, manifest.descriptor, repository)
            trust = Trust(identity=identity, issuer=ISSUER, root=root)
            (verification,) = verify(f"{repository.ref}:v1", entry, trust, origin=rules)
            return {finding.check: finding for finding in verification.findings}

        return attach_and_verify

    def test_a_provenance_of_the_build_platform_counts(
        self,
        published: tuple[Repository, Manifest, Oci],
        findings: Callable[..., dict[str, VerifyFinding]],
        sigstore: Sigstore,
    ) -> None:
        digest = published[1].digest
        rules = OriginRules(builders=(IDENTITY.partition("@")[0],), sources=("github.com/team/images",))
        signature = statement.statement("images", digest, "https://sigstore.dev/cosign/sign/v1", {})
        of_others = sigstore.bundle(provenance(digest), identity="https://github.com/evil/x/.github/workflows/a.yml@b")
        bundles = [sigstore.bundle(content) for content in (signature, provenance(digest))]
        results = findings(of_others, *bundles, rules=rules)
        assert [results[name].holds for name in ("signature", "builder", "source")] == [True, True, True]
        assert results["signed report"].holds is False  # nobody signed what `publish` attached

    def test_inputs_are_asked_of_a_provenance_that_lists_them(
        self,
        published: tuple[Repository, Manifest, Oci],
        findings: Callable[..., dict[str, VerifyFinding]],
        sigstore: Sigstore,
    ) -> None:
        bundle = sigstore.bundle(provenance(published[1].digest))
        results = findings(bundle, rules=OriginRules(locked_inputs=True))
        assert results["inputs"].detail == "no provenance that they signed lists the inputs"

    def test_a_refused_bundle_is_named_in_a_line(
        self, findings: Callable[..., dict[str, VerifyFinding]], sigstore: Sigstore
    ) -> None:
        results = findings(sigstore.bundle(provenance(DIGEST)), rules=OriginRules(builders=(IDENTITY,)))
        assert results["origin"].holds is False
        assert "is about aaaa" in results["origin"].detail
        assert "and not about this image" in results["signature"].detail
