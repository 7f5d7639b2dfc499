"""docker's push events, as engines have been seen to send them."""

import pytest

from rdma_images.publish.push_progress import PushProgress, push_error
from rdma_images.registry import registry_errors

DIGEST = "sha256:4e3c043e17e3ca5c300676fc51c2ab978daa8461be0f686405c31604349a1880"


def test_a_push_of_docker_26_with_the_containerd_store() -> None:
    push = PushProgress()
    events: list[dict[str, object]] = [
        {"status": "The push refers to repository [127.0.0.1:5055/a/b]"},
        {"status": "Pushing", "progressDetail": {"current": 9437184, "total": 30009344}, "id": "9d1c09127175"},
        {"status": "Pushing", "progressDetail": {"current": 30009344, "total": 30009344}, "id": "9d1c09127175"},
        {"status": "Pushed", "progressDetail": {}, "id": "9d1c09127175"},
        {"status": "Layer already exists", "progressDetail": {}, "id": "2e4e218bcb8c"},
        {"status": "Mounted from a/b", "progressDetail": {}, "id": "e40573a04a77"},
        {"status": f"v1: digest: {DIGEST} size: 901"},
    ]
    for event in events:
        push.update(event, "h", "r:v1")
    assert push.digest == DIGEST
    assert {name: layer.state for name, layer in push.layers.items()} == {
        "9d1c09127175": "pushed",
        "2e4e218bcb8c": "present",
        "e40573a04a77": "mounted",
    }
    assert push.description() == "3 of 3 layers, 30.0 MB of 30.0 MB sent"


# Error texts of Docker 26.1 and containerd 1.7 against docker-registry 2.8, and of ECR's documentation.
UNAUTHORIZED = "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized"
DENIED = "push access denied, repository does not exist or may require authorization: insufficient_scope"
IMMUTABLE = "tag invalid: The image tag 'v1' already exists and cannot be overwritten: the repository is immutable."
TEXTS = [
    (
        'failed to do request: Head "http://h/v2/": dial tcp 127.0.0.1:1: connect: connection refused',
        "UnreachableError",
    ),
    ('failed to copy: failed to do request: Put "http://h/x?_state=abc": EOF', "BusyError"),
    ("unexpected status from POST request to http://h/v2/r/blobs/uploads/: 500 Internal Server Error", "BusyError"),
    ("unexpected status from PUT request to http://h/v2/r/manifests/v1: 429 Too Many Requests", "BusyError"),
    (UNAUTHORIZED, "UnauthorizedError"),
    (DENIED, "DeniedError"),
    ("name unknown: The repository with name 'r' does not exist in the registry with id '1'", "MissingError"),
    (IMMUTABLE, "ConflictError"),
    ("write tcp 127.0.0.1:1->127.0.0.1:2: write: broken pipe", "BusyError"),
    ("something nobody has seen yet", "RegistryError"),
    ("manifest invalid: geoff/app: 400 bad request", "RegistryError"),
    ("failed to push r.io/immutable-base: unexpected status: 401", "UnauthorizedError"),
]


@pytest.mark.parametrize(("text", "kind"), TEXTS)
def test_every_error_text_is_distinguished(text: str, kind: str) -> None:
    error = push_error("h", "r:v1", text)
    assert type(error).__name__ == kind
    assert "_state" not in str(error)


def test_an_error_hidden_in_the_stream_is_raised() -> None:
    with pytest.raises(registry_errors.BusyError, match="was not pushed"):
        PushProgress().update({"errorDetail": {"message": "EOF"}, "error": "EOF"}, "h", "r:v1")


def test_repeated_events_are_no_progress() -> None:
    push = PushProgress()
    first = {"status": "Pushing", "progressDetail": {"current": 5, "total": 9}, "id": "9d1c09127175"}
    waiting = {"status": "Waiting", "progressDetail": {}, "id": "2e4e218bcb8c"}
    states = []
    for event in (first, waiting, first, waiting, {"status": "Pushed", "progressDetail": {}, "id": "9d1c09127175"}):
        push.update(event, "h", "r:v1")
        states.append(push.snapshot())
    assert states[1] == states[2] == states[3]
    assert states[4] != states[3]
