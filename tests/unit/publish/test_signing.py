"""A keyless signer recognizes its own signatures; cosign is a double here."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rdma_images.publish.destination import open_destination
from rdma_images.publish.keys import KEYLESS, Signer
from rdma_images.publish.signing import ImageSigner
from rdma_images.registry.registries import Oci
from tests.support.publish_doubles import Store, served

JOB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "team/images",
    "GITHUB_REF": "refs/heads/main",
}


@pytest.fixture
def cosign_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return what cosign was asked, a line a call; it finds everything signed."""
    program, calls = tmp_path / "cosign", tmp_path / "calls"
    # Asked what it can do, it answers like cosign 2.4 and 2.5.
    program.write_text(f'#!/bin/sh\ncase $* in *--help) echo --trusted-root ;; *) echo "$*" >> {calls} ;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in JOB:
        monkeypatch.delenv(name, raising=False)
    return lambda: calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def signing() -> Iterator[ImageSigner]:
    with served(Store().handler()) as host:
        destination = open_destination("here", Oci(kind="oci", host=host, credentials="none"))
        yield ImageSigner(Signer(KEYLESS), destination, destination.repository("r"), "sha256:1", lambda _: None)


def test_in_a_ci_job_it_asks_for_its_own_identity(
    signing: ImageSigner, cosign_calls: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    assert signing.has_signed(())
    (call,) = cosign_calls()
    assert call.startswith("verify --allow-http-registry --certificate-identity-regexp ^https://github")
    assert "--certificate-oidc-issuer https://token.actions.githubusercontent.com" in call


def test_elsewhere_it_trusts_nobody(signing: ImageSigner, cosign_calls: Callable[[], list[str]]) -> None:
    assert not signing.has_signed(())
    assert cosign_calls() == []
