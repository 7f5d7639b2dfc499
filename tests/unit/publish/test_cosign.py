"""Who signs, whom a verifier trusts, and which cosign is taken."""

import re
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.publish import cosign, keys
from rdma_images.registry import registry_errors
from rdma_images.registry.connection import Connection


class TestTrust:
    def test_nobody(self) -> None:
        assert keys.parse_trust("", "", "") is None

    def test_half_an_identity_and_both_are_refused(self) -> None:
        with pytest.raises(RefusedError, match="belong together"):
            keys.parse_trust("", "ci@example.com", "")
        with pytest.raises(RefusedError, match="exclude each other"):
            keys.parse_trust("k.pub", "ci@example.com", "https://issuer.example")

    def test_a_key_file_that_is_not_there_is_refused_first(self, tmp_path: Path) -> None:
        with pytest.raises(RefusedError, match=r"--key .*none\.pub: no such file"):
            keys.parse_trust(str(tmp_path / "none.pub"), "", "")
        with pytest.raises(RefusedError, match=r"--sign .*none\.key: no such file"):
            keys.parse_signer(str(tmp_path / "none.key"))
        assert keys.parse_trust("awskms:///alias/x", "", "") == keys.Trust(key="awskms:///alias/x")
        assert keys.parse_signer("keyless") == keys.Signer("keyless")
        assert keys.parse_signer("") is None

    def test_a_keyless_signer_knows_itself_in_a_ci_job(self) -> None:
        job = {"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "team/images"}
        trust = keys.ci_identity(job | {"GITHUB_REF": "refs/heads/main"})
        workflow = "https://github.com/team/images/.github/workflows/image.yml@refs/heads/main"
        assert trust
        assert trust.identity
        assert re.search(trust.identity, workflow)
        for old, new in (("main", "mainly"), ("team", "teem"), ("github.com", "githubxcom")):
            assert not re.search(trust.identity, workflow.replace(old, new))
        assert keys.ci_identity(job) is None
        assert keys.ci_identity({}) is None

    # The words of cosign 2.5 and 3.1.
    @pytest.mark.parametrize(
        ("verb", "output", "kind"),
        [
            (
                "verify",
                "Error: no signatures found\nerror during command execution: no signatures found",
                "_NoSignatureError",
            ),
            ("verify", "Error: no matching signatures: invalid signature when validating", "_NoSignatureError"),
            (
                "verify-attestation",
                "Error: none of the attestations matched the predicate type: u",
                "_NoSignatureError",
            ),
            ("verify-attestation", "Error: no matching attestations: \nerror during command", "_NoSignatureError"),
            ("sign", "Error: signing [r]: getting signer: reading key: decrypt: encrypted", "UnauthorizedError"),
            ("sign", "Error: signing [r]: PUT http://h/v2/: connection refused", "BusyError"),
            ("sign", "Error: something else", "RegistryError"),
        ],
    )
    def test_its_complaints_are_distinguished(self, verb: str, output: str, kind: str) -> None:
        assert type(cosign.cosign_error(verb, "r", output)).__name__ == kind

    def test_its_warnings_are_not_the_complaint(self) -> None:
        warnings = "Flag --tlog-upload has been deprecated, prefer another\nSigning artifact...\nWARNING: an image\n"
        message = str(cosign.cosign_error("sign", "r", f"{warnings}Error: the cause\nerror during command"))
        assert message.splitlines()[0].endswith(": the cause")
        without = str(cosign.cosign_error("sign", "r", f"{warnings}main.go:1: x"))
        assert without.splitlines()[0].endswith(": Signing artifact...")


@pytest.mark.parametrize("output", ["no JSON", "[3]", '{"payload": "!"}', "3"])
def test_an_answer_in_another_form_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    write_program(tmp_path / "cosign", f"case $* in *--help) echo --trusted-root ;; *) echo '{output}' ;; esac")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    client = cosign.Cosign(Connection("registry.example", lambda: None, None))
    with pytest.raises(registry_errors.RegistryError, match=r"cosign verify-attestation .* another form.*\ninstall"):
        client.statements("r", keys.Trust(key="k.pub"), "urn:form")


class TestFindingCosign:
    """What a cosign can do is told by its help: Debian's say that their version is `devel`."""

    @pytest.fixture(autouse=True)
    def _first_on_the_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))

    def test_an_old_cosign_is_named_with_what_to_install(self, tmp_path: Path) -> None:
        # As in the documentation of the tag v2.3.0: `verify-blob` has no --trusted-root yet.
        write_program(tmp_path / "cosign", "echo 'GitVersion:    v2.3.0'; echo '--timestamp-certificate-chain string'")
        with pytest.raises(RdmaImagesError) as error:
            cosign.find_program()
        first, second = str(error.value).splitlines()
        assert first == f"{tmp_path}/cosign is older than cosign 2.4, or no cosign at all (its version: v2.3.0)"
        assert second.startswith("install cosign 2.4 or later, as a package (Debian 13 has 2.5)")

    def test_one_that_does_not_run_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "cosign").write_bytes(b"\x7fELF")
        (tmp_path / "cosign").chmod(0o755)
        with pytest.raises(RdmaImagesError, match=r"cosign does not run: .*\ninstall cosign 2\.4 or later"):
            cosign.find_program()


def write_program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
