"""cosign 2.4 to 3: each version signs and verifies with a key, also the other's work."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.engine.debian import debian_packages
from rdma_images.jobs.results import evidence
from rdma_images.publish import verify
from rdma_images.publish.cosign import Cosign
from rdma_images.publish.keys import Signer, Trust
from rdma_images.publish.registry_kinds import open_kind
from rdma_images.registry import registries, registry_errors
from rdma_images.registry.client import OCI_MANIFEST, Descriptor, Manifest, Repository, canonical
from rdma_images.registry.connection import Connection
from rdma_images.registry.credentials import docker_environment
from tests.e2e.publish_parts import PASSWORD, USER, Registry, cosign_key, registry_program
from tests.unit.jobs import test_evidence

pytestmark = [pytest.mark.e2e, pytest.mark.part("cosign")]

SUITES = ("trixie", "sid")  # Debian's, with cosign 2.5 and 3.1
FORM = "urn:rdma-images:validation-report:1"


def release(suite: str) -> Path:
    """Return the folder of Debian's cosign of one suite."""
    folder = debian_packages.fetch(["cosign"], suite, paths.state_folder() / f"cosign-{suite}", print)
    return folder / "usr" / "bin"


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """Yield a registry that asks for a password."""
    folder = tmp_path_factory.mktemp("registry")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_REGISTRY_USER", USER)
        patch.setenv("TEST_REGISTRY_PASSWORD", PASSWORD)
        patch.setenv("COSIGN_PASSWORD", "pass phrase")
        registry = Registry(registry_program(), folder).start()
        kind = open_kind(registry.entry())
        yield Connection(registry.host, kind.login, kind.tls)
        registry.kill()


@pytest.fixture
def image(connection: Connection, request: pytest.FixtureRequest) -> str:
    """Return an image without layers, by digest."""
    repository = Repository(connection, "training/small")
    config = canonical({"name": request.node.name, "rootfs": {"type": "layers", "diff_ids": []}})
    described = Descriptor("application/vnd.oci.image.config.v1+json", repository.put_blob(config), len(config))
    body = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described.as_json(), "layers": []}
    manifest = Manifest(OCI_MANIFEST, canonical(body))
    repository.put_manifest("small", manifest)
    return f"{repository.ref}@{manifest.digest}"


def client(folder: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Cosign:
    """Return the cosign found first in `folder`, without Sigstore's public services."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", connection.host)
    monkeypatch.setenv("no_proxy", connection.host)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    cosign = Cosign(connection)
    assert cosign.program.path.parent == folder
    return cosign


@pytest.mark.parametrize(
    ("signs", "verifies"),
    [
        pytest.param(entry, other, marks=pytest.mark.exhaustive if entry == other else ())
        for entry in SUITES
        for other in SUITES
    ],
)
def test_what_one_version_signs_the_other_verifies(
    signs: str, verifies: str, connection: Connection, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = client(release(signs), connection, monkeypatch)
    private, public = cosign_key(tmp_path / "key")
    monkeypatch.undo()
    witness = client(release(verifies), connection, monkeypatch)
    _, strange = cosign_key(tmp_path / "other")
    trust, stranger = Trust(key=str(public)), Trust(key=str(strange))
    assert not witness.has_signed(image, trust)
    assert witness.statements(image, trust, FORM) == []

    signer.sign(image, Signer(str(private)))
    for passed in (False, True):
        signer.attest(image, Signer(str(private)), FORM, json.dumps({"passed": passed}).encode())
    assert witness.has_signed(image, trust)
    assert [statement["predicate"] for statement in witness.statements(image, trust, FORM)] == [{"passed": True}]
    assert not witness.has_signed(image, stranger)
    assert witness.statements(image, stranger, FORM) == []
    with signer.trust(Signer(str(private))) as trusted:
        assert trusted
        assert witness.has_signed(image, trusted)


def test_a_bundle_of_somebody_else_hides_no_signature(
    connection: Connection, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default cosign 3 makes bundles, and where it finds one, it reads nothing else."""
    current = client(release("sid"), connection, monkeypatch)
    private, public = cosign_key(tmp_path / "key")
    other_key, _ = cosign_key(tmp_path / "other")
    current.sign(image, Signer(str(private)))
    with docker_environment(connection.host, connection.login()) as environ:
        command: list[str | Path] = [current.program.path, "sign", "--yes", "--allow-http-registry", "--key", other_key]
        command += ["--use-signing-config=false", "--tlog-upload=false", image]
        subprocess.run(command, env=environ, check=True, capture_output=True)
    assert current.has_signed(image, Trust(key=str(public)))


@pytest.mark.parametrize("suite", SUITES)
def test_a_wrong_password_is_reported(
    suite: str, connection: Connection, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cosign_client = client(release(suite), connection, monkeypatch)
    private, _ = cosign_key(tmp_path / "key")
    monkeypatch.setenv("COSIGN_PASSWORD", "another")
    with pytest.raises(
        registry_errors.UnauthorizedError, match=r"\(signing .*decryption failed\)\nset COSIGN_PASSWORD"
    ):
        cosign_client.sign(image, Signer(str(private)))


def test_a_jobs_result_is_signed_and_another_s_is_not_believed(
    connection: Connection, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may push can attach a newer one; with the key it is the signed one that is read."""
    client(release(SUITES[0]), connection, monkeypatch)
    private, public = cosign_key(tmp_path / "key")
    host, _, path = image.partition("/")
    login = "{username: 'env:TEST_REGISTRY_USER', password: 'env:TEST_REGISTRY_PASSWORD'}"
    (tmp_path / "registries.yaml").write_text(
        f"registries:\n  here: {{kind: oci, host: '{host}', credentials: {login}}}\n"
    )
    monkeypatch.setenv("RDMA_IMAGES_REGISTRIES", str(tmp_path / "registries.yaml"))
    signed = replace(test_evidence.GOOD, digest=path.partition("@")[2])
    forged = replace(signed, sentence="the channels use EFA at 9,000 GB/s")
    unsigned = test_evidence.publisher()
    evidence.attach_result(signed, image, replace(unsigned, signer=Signer(str(private))))
    evidence.attach_result(forged, image, unsigned)
    verifications = verify.verify(image, registries.load_if_present().for_host(host), Trust(key=str(public)))
    findings_by_check = {finding.check: finding for finding in verifications[0].findings}
    assert findings_by_check["signed job results"].holds
    assert findings_by_check["job result"].detail.startswith("2 x p5.48xlarge: the channels use EFA; ")
