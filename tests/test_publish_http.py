"""Asking a registry: who we are, again when it forgot, and every refusal as a sentence."""

import pytest
import requests
from publish_doubles import Handler, Store, served

from rdma_images.publish import faults
from rdma_images.publish.client import OCI_MANIFEST, Manifest, Repository, canonical, digest_of
from rdma_images.publish.http import Connection
from rdma_images.publish.secrets import Login

GOOD = Login("ci", "secret")


def repository(host, login=GOOD):
    return Repository(Connection(host, lambda: login), "training/efa-pytorch")


@pytest.mark.parametrize("auth", ["none", "basic", "bearer"])
def test_blobs_and_manifests_go_and_come_back(auth):
    store = Store(auth)
    with served(store.handler()) as host:
        there = repository(host)
        digest = there.put_blob(b"content")
        assert there.blob(digest) == b"content"
        manifest = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2}))
        there.put_manifest("v1", manifest)
        assert there.head("v1") == there.manifest("v1").digest == manifest.digest
        assert there.head("v2") is None


def test_a_blob_that_is_there_is_not_sent_again():
    store = Store()
    with served(store.handler()) as host:
        there = repository(host)
        there.put_blob(b"content")
        before = len(store.asked)
        there.put_blob(b"content")
        assert [method for method, _ in store.asked[before:]] == ["HEAD"]


def test_a_blob_at_which_the_registry_fails_is_sent():
    store = Store()
    with served(store.handler()) as host:
        there = repository(host)
        store.failing[digest_of(b"content")] = 9
        assert there.blob(there.put_blob(b"content")) == b"content"


def test_a_blob_that_the_registry_holds_in_part_is_told():
    store = Store()
    store.blobs[digest_of(b"content")] = b""
    with (
        served(store.handler()) as host,
        pytest.raises(faults.ConflictError, match="has 7 bytes, the registry holds 0"),
    ):
        repository(host).put_blob(b"content")


def test_an_identity_token_is_exchanged():
    store = Store("bearer")
    with served(store.handler()) as host:
        repository(host, Login(identity_token="secret")).head("v1")
    assert store.tokens[0]["grant_type"] == ["refresh_token"]


def test_a_token_that_expired_is_fetched_again():
    store = Store("bearer")
    with served(store.handler()) as host:
        there = repository(host)
        there.put_blob(b"one")
        store.token = "token-2"
        there.put_blob(b"two")
    assert digest_of(b"two") in store.blobs


def test_a_login_that_expired_is_asked_for_again():
    store = Store("basic")
    logins = iter([GOOD, Login("ci", "fresh")])
    with served(store.handler()) as host:
        there = Repository(Connection(host, lambda: next(logins)), "r")
        there.put_blob(b"one")
        store.password = "fresh"
        there.put_blob(b"two")
    assert digest_of(b"two") in store.blobs


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_wrong_password_is_a_sentence_without_it(auth):
    with served(Store(auth).handler()) as host:
        there = repository(host, Login("ci", "hunter2"))
        with pytest.raises(faults.UnauthorizedError, match="does not take the credentials") as caught:
            there.put_blob(b"content")
        assert "hunter2" not in str(caught.value)


def page(handler):
    handler.answer(200, b"<html>Welcome!</html>", {"Content-Type": "text/html"})


class Page(Handler):
    """A web server that knows nothing of registries."""

    do_GET = do_HEAD = page


@pytest.mark.parametrize("asked", ["head", "manifest"])
def test_a_web_server_is_no_registry(asked):
    with served(Page) as host, pytest.raises(faults.MalformedError, match="is no JSON object: is a registry there"):
        getattr(repository(host), asked)("v1")


def test_a_token_endpoint_that_answers_with_a_page():
    store = Store("bearer")
    store.give_token = lambda request, *_: page(request)
    with served(store.handler()) as host, pytest.raises(faults.MalformedError, match="is no JSON object"):
        repository(host).head("v1")


def test_no_login_where_one_is_wanted():
    with served(Store("basic").handler()) as host, pytest.raises(faults.UnauthorizedError, match="there are none"):
        repository(host, None).head("v1")


def test_other_bytes_than_asked_for_are_noticed():
    store = Store()
    with served(store.handler()) as host:
        there = repository(host)
        digest = there.put_blob(b"content")
        store.blobs[digest] = b"tampered"
        with pytest.raises(faults.ConflictError, match="other bytes"):
            there.blob(digest)


def test_a_host_that_is_down():
    with served(Store().handler()) as host:
        pass
    with pytest.raises(faults.UnreachableError, match=f"{host} cannot be reached: the connection is refused"):
        repository(host).head("v1")


def test_a_name_that_nobody_knows():
    with pytest.raises(faults.UnreachableError, match=r"registry\.invalid cannot be reached"):
        repository("registry.invalid").head("v1")


@pytest.mark.parametrize(
    ("words", "temporary"),
    [
        ("[Errno -2] Name or service not known", False),
        ("[Errno -5] No address associated with hostname", False),
        ("[Errno -3] Temporary failure in name resolution", True),
    ],
)
def test_a_name_is_asked_for_once_unless_nobody_could_be_asked(words, temporary):
    error = requests.ConnectionError(f"Failed to resolve 'h' ({words})")
    assert faults.from_transport("h", error).temporary is temporary


def test_credentials_do_not_follow_an_address_on_another_host():
    store = Store("basic")
    other = Store()
    with served(store.handler()) as host, served(other.handler()) as elsewhere:
        there = repository(host)
        there.put_blob(b"content")
        answer = there.connection.request("GET", f"http://{elsewhere}/v2/", "repository:r:pull", "r")
    assert "Authorization" not in answer.request.headers


@pytest.mark.parametrize(
    ("status", "kind", "temporary"),
    [
        (401, faults.UnauthorizedError, False),
        (403, faults.DeniedError, False),
        (404, faults.MissingError, False),
        (429, faults.BusyError, True),
        (503, faults.BusyError, True),
        (400, faults.PublishError, False),
    ],
)
def test_every_status_has_its_fault(status, kind, temporary):
    fault = faults.from_status("h", "r:v1", status, '{"errors": [{"code": "X", "message": "because"}]}')
    assert type(fault) is kind
    assert fault.temporary is temporary
    assert "because" in str(fault)


def test_what_must_not_be_shown_is_masked():
    said = faults.masked("PUT https://h/v2/r/blobs/uploads/1?_state=SECRET&x=y failed, Basic Y2k6c2VjcmV0 pw", ("pw",))
    assert "SECRET" not in said
    assert "Y2k6c2VjcmV0" not in said
    assert said.endswith("***")


class TestPersist:
    def test_faults_that_heal_are_tried_again(self):
        waits, said, left = [], [], [faults.BusyError("a"), faults.UnreachableError("b")]

        def action():
            if left:
                raise left.pop(0)
            return "done"

        assert faults.persist(action, first_wait=1, say=said.append, sleep=waits.append) == "done"
        assert 1 <= waits[0] <= 1.25
        assert 2 <= waits[1] <= 2.5
        assert "trying again" in said[0]

    def test_the_last_fault_is_raised(self):
        waits = []

        def action():
            raise faults.BusyError("still")

        with pytest.raises(faults.BusyError, match="still"):
            faults.persist(action, attempts=3, sleep=waits.append)
        assert len(waits) == 2

    def test_what_does_not_heal_is_raised_at_once(self):
        def action():
            raise faults.DeniedError("no")

        with pytest.raises(faults.DeniedError):
            faults.persist(action, sleep=lambda _: pytest.fail("waited"))
