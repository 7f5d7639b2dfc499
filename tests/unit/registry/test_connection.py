"""Asking a registry: who we are, again when it forgot, and every refusal as a sentence."""

import pytest
import requests

from rdma_images.registry import registry_errors
from rdma_images.registry.client import OCI_MANIFEST, Manifest, Repository, canonical, sha256_digest
from rdma_images.registry.connection import Connection
from rdma_images.registry.credentials import Login
from tests.support.publish_doubles import PageHandler, Store, served

GOOD = Login("ci", "secret")


def repository(host: str, login: Login | None = GOOD) -> Repository:
    return Repository(Connection(host, lambda: login), "training/efa-pytorch")


@pytest.mark.parametrize("auth", ["none", "basic", "bearer"])
def test_blobs_and_manifests_go_and_come_back(auth: str) -> None:
    store = Store(auth)
    with served(store.handler()) as host:
        remote = repository(host)
        digest = remote.put_blob(b"content")
        assert remote.blob(digest) == b"content"
        manifest = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2}))
        remote.put_manifest("v1", manifest)
        assert remote.find_digest("v1") == remote.manifest("v1").digest == manifest.digest
        assert remote.find_digest("v2") is None


def test_a_blob_that_is_there_is_not_sent_again() -> None:
    store = Store()
    with served(store.handler()) as host:
        remote = repository(host)
        remote.put_blob(b"content")
        before = len(store.requests)
        remote.put_blob(b"content")
        assert [method for method, _ in store.requests[before:]] == ["HEAD"]


def test_a_blob_that_the_registry_holds_in_part_is_reported() -> None:
    store = Store()
    store.blobs[sha256_digest(b"content")] = b""
    with (
        served(store.handler()) as host,
        pytest.raises(registry_errors.ConflictError, match="has 7 bytes, the registry holds 0"),
    ):
        repository(host).put_blob(b"content")


@pytest.mark.parametrize(("auth", "secret"), [("basic", "password"), ("bearer", "token")])
def test_what_expired_is_asked_for_again(auth: str, secret: str) -> None:
    store = Store(auth)
    with served(store.handler()) as host:
        renewed = Repository(Connection(host, lambda: Login("ci", store.password)), "r")
        renewed.put_blob(b"one")
        setattr(store, secret, "fresh")
        renewed.put_blob(b"two")
    assert sha256_digest(b"two") in store.blobs


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_wrong_password_is_a_sentence_without_it(auth: str) -> None:
    with served(Store(auth).handler()) as host:
        remote = repository(host, Login("ci", "hunter2"))
        with pytest.raises(registry_errors.UnauthorizedError, match="does not take the credentials") as caught:
            remote.put_blob(b"content")
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("method", ["find_digest", "manifest"])
def test_a_web_server_is_no_registry(method: str) -> None:
    with (
        served(PageHandler) as host,
        pytest.raises(registry_errors.MalformedError, match="is not a JSON object\ncheck that a registry"),
    ):
        getattr(repository(host), method)("v1")


def test_a_token_that_is_no_header_is_refused() -> None:
    store = Store("bearer")
    store.token = "token\u2028"
    with served(store.handler()) as host, pytest.raises(registry_errors.MalformedError, match="sent a malformed token"):
        repository(host).find_digest("v1")


def test_no_login_where_the_registry_wants_a_login() -> None:
    with (
        served(Store("basic").handler()) as host,
        pytest.raises(registry_errors.UnauthorizedError, match="there are none"),
    ):
        repository(host, None).find_digest("v1")


def test_other_bytes_than_asked_for_are_noticed() -> None:
    store = Store()
    with served(store.handler()) as host:
        remote = repository(host)
        digest = remote.put_blob(b"content")
        store.blobs[digest] = b"tampered"
        with pytest.raises(registry_errors.ConflictError, match="other bytes"):
            remote.blob(digest)


def test_a_host_that_is_down() -> None:
    with served(Store().handler()) as host:
        pass
    with pytest.raises(registry_errors.UnreachableError, match=f"{host} is unreachable: the connection is refused"):
        repository(host).find_digest("v1")


@pytest.mark.parametrize(
    ("words", "temporary"),
    [
        ("[Errno -2] Name or service not known", False),
        ("[Errno -5] No address associated with hostname", False),
        ("[Errno -3] Temporary failure in name resolution", True),
    ],
)
def test_a_name_is_asked_for_once_unless_nobody_could_be_asked(words: str, temporary: bool) -> None:
    error = requests.ConnectionError(f"Failed to resolve 'h' ({words})")
    assert registry_errors.transport_error("h", error).temporary is temporary


def test_credentials_do_not_follow_an_address_on_another_host() -> None:
    store = Store("basic")
    other = Store()
    with served(store.handler()) as host, served(other.handler()) as elsewhere:
        remote = repository(host)
        remote.put_blob(b"content")
        answer = remote.connection.request("GET", f"http://{elsewhere}/v2/", "repository:r:pull", "r")
    assert "Authorization" not in answer.request.headers


@pytest.mark.parametrize(
    ("status", "kind", "temporary"),
    [
        (401, registry_errors.UnauthorizedError, False),
        (403, registry_errors.DeniedError, False),
        (404, registry_errors.MissingError, False),
        (429, registry_errors.BusyError, True),
        (503, registry_errors.BusyError, True),
        (400, registry_errors.RegistryError, False),
    ],
)
def test_every_status_has_its_fault(status: int, kind: type[object], temporary: bool) -> None:
    fault = registry_errors.status_error("h", "r:v1", status, '{"errors": [{"code": "X", "message": "because"}]}')
    assert type(fault) is kind
    assert fault.temporary is temporary
    assert "because" in str(fault)


def test_what_must_not_be_shown_is_masked() -> None:
    masked = registry_errors.mask_secrets(
        "PUT https://h/v2/r/blobs/uploads/1?_state=SECRET&x=y failed, Basic Y2k6c2VjcmV0 pw", ("pw",)
    )
    assert "SECRET" not in masked
    assert "Y2k6c2VjcmV0" not in masked
    assert masked.endswith("***")
    masked = registry_errors.mask_secrets("proxy http://user:hunter2@proxy:3128/: Basic authentication is required")
    assert masked == "proxy http://***@proxy:3128/: Basic authentication is required"


class TestRetry:
    def test_faults_that_heal_are_tried_again(self) -> None:
        waits: list[float] = []
        lines: list[str] = []
        remaining_faults: list[registry_errors.BusyError | registry_errors.UnreachableError] = [
            registry_errors.BusyError("a"),
            registry_errors.UnreachableError("b"),
        ]

        def action() -> str:
            if remaining_faults:
                raise remaining_faults.pop(0)
            return "done"

        assert registry_errors.retry(action, first_wait=1, progress=lines.append, sleep=waits.append) == "done"
        assert 1 <= waits[0] <= 1.25
        assert 2 <= waits[1] <= 2.5
        assert "trying again" in lines[0]

    def test_the_last_fault_is_raised(self) -> None:
        waits: list[float] = []

        def action() -> None:
            raise registry_errors.BusyError("still")

        with pytest.raises(registry_errors.BusyError, match="still"):
            registry_errors.retry(action, attempts=3, sleep=waits.append)
        assert len(waits) == 2

    def test_what_does_not_heal_is_raised_at_once(self) -> None:
        def action() -> None:
            raise registry_errors.DeniedError("no")

        with pytest.raises(registry_errors.DeniedError):
            registry_errors.retry(action, sleep=lambda _: pytest.fail("waited"))
