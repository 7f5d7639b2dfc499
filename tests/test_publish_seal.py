"""A keyless signer knows its own signatures again. The public services are out of reach: cosign is a double here."""

import pytest
from publish_doubles import Store, served

from rdma_images.publish.destination import destination
from rdma_images.publish.keys import KEYLESS, Signer
from rdma_images.publish.registries import Oci
from rdma_images.publish.seal import Seal

JOB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "team/images",
    "GITHUB_REF": "refs/heads/main",
}


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What cosign was asked, a line a call; it finds everything signed."""
    program, calls = tmp_path / "cosign", tmp_path / "calls"
    program.write_text(f'#!/bin/sh\necho "$*" >> {calls}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in JOB:
        monkeypatch.delenv(name, raising=False)
    return lambda: calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def seal():
    with served(Store().handler()) as host:
        place = destination("here", Oci(kind="oci", host=host, credentials="none"))
        yield Seal(Signer(KEYLESS), place, place.repository("r"), "sha256:1", lambda _: None)


def test_in_a_ci_job_it_asks_for_its_own_identity(seal, asked, monkeypatch):
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    assert seal.is_on(())
    (call,) = asked()
    assert call.startswith("verify --allow-http-registry --certificate-identity-regexp ^https://github")
    assert "--certificate-oidc-issuer https://token.actions.githubusercontent.com" in call


def test_elsewhere_it_believes_nobody(seal, asked):
    assert not seal.is_on(())
    assert asked() == []
