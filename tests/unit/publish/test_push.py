"""A push by an engine of another machine."""

import ssl
from pathlib import Path

import pytest
import trustme

from rdma_images.engine import Engine
from rdma_images.publish.push import PushPolicy, push_image
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Repository
from rdma_images.registry.connection import Connection
from tests.support.loopback import Answer, serve


def test_an_engine_behind_tls_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has no such image, as it says over the connection that docker's variables describe."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    login = authority.issue_cert("client")
    login.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    login.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # which requests puts before the client's own
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    repository = Repository(Connection("registry.example", lambda: None), "trainer")
    with serve(context) as site:
        site.answers["/version"] = Answer(b'{"ApiVersion": "1.44"}')
        site.answers["/v1.44/images/sha256:1/json"] = Answer(b'{"message": "No such image"}', status=404)
        engine = Engine(
            name="tls",
            kind="existing",
            host=site.address.replace("https", "tcp"),
            version="29",
            buildx="0.30",
            store="containerd",
            build_network="default",
        )
        with pytest.raises(registry_errors.MissingError, match="the engine has no image sha256:1"):
            push_image(engine, "sha256:1", repository, "1", PushPolicy(), print)
