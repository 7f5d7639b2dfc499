"""Short tags go forward only."""

from collections.abc import Iterator

import pytest

from rdma_images.publish.moving_tags import advance_tags, created_at
from rdma_images.registry.client import OCI_INDEX, OCI_MANIFEST, Manifest, Repository, canonical
from rdma_images.registry.http import Connection
from tests.support.publish_doubles import Store, served

OLD, NEW = "2026-11-20T08:00:00Z", "2026-11-21T08:00:00.123456789Z"


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def there(store: Store) -> Iterator[Repository]:
    with served(store.handler()) as host:
        yield Repository(Connection(host, lambda: None), "r")


def put(there: Repository, created: int | str | None, seed: str = "") -> Manifest:
    config = there.put_blob(canonical({"created": created, "seed": seed}))
    manifest = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "config": {"digest": config}, "layers": []}))
    there.put_manifest(manifest.digest, manifest)
    return manifest


def test_forward_and_never_back(there: Repository) -> None:
    said: list[str] = []
    old, new = put(there, OLD), put(there, NEW)
    assert advance_tags(["latest", "2.15"], old.digest, there, said.append) == ("latest", "2.15")
    assert advance_tags(["latest"], new.digest, there, said.append) == ("latest",)
    assert said == []
    assert advance_tags(["latest", "2.15"], old.digest, there, said.append) == ("2.15",)
    assert there.head("latest") == new.digest
    assert f":latest stays with {new.digest}, whose sources are of 2026-11-21 08:00 UTC" in said[0]


def test_a_rebuild_of_the_same_sources_is_no_step_back(there: Repository) -> None:
    first, second = put(there, NEW), put(there, NEW, "rebuilt")
    advance_tags(["latest"], first.digest, there, print)
    assert advance_tags(["latest"], second.digest, there, print) == ("latest",)
    assert there.head("latest") == second.digest


def test_a_tag_at_which_the_registry_fails_is_written_again(
    there: Repository, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    image = put(there, OLD)
    advance_tags(["latest"], image.digest, there, print)
    store.failing["latest"] = 9
    assert advance_tags(["latest"], image.digest, there, print) == ("latest",)
    assert there.head("latest") == image.digest


def test_a_short_trouble_takes_no_tag_back(there: Repository, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    old, new = put(there, OLD), put(there, NEW)
    advance_tags(["latest"], new.digest, there, print)
    store.failing["latest"] = 2
    assert advance_tags(["latest"], old.digest, there, print) == ()
    assert there.head("latest") == new.digest


@pytest.mark.parametrize("created", [None, "", "yesterday", 3])
def test_what_does_not_say_when_it_was_made_gives_way(created: int | str | None, there: Repository) -> None:
    advance_tags(["latest"], put(there, created).digest, there, print)
    assert advance_tags(["latest"], put(there, OLD).digest, there, print) == ("latest",)


def test_an_index_is_as_new_as_its_newest_image(there: Repository) -> None:
    members = [one.descriptor.as_json() for one in (put(there, OLD), put(there, NEW))]
    index = Manifest(OCI_INDEX, canonical({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": members}))
    there.put_manifest("joint", index)
    assert created_at(index.digest, there) == created_at(put(there, NEW).digest, there)
