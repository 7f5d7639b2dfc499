"""Short tags go forward only."""

from collections.abc import Iterator

import pytest

from rdma_images.publish.tags import advance_tags, created_at
from rdma_images.registry.client import OCI_INDEX, OCI_MANIFEST, Manifest, Repository, canonical
from rdma_images.registry.http import Connection
from tests.support.publish_doubles import Store, served

OLD, NEW = "2026-11-20T08:00:00Z", "2026-11-21T08:00:00.123456789Z"


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def repository(store: Store) -> Iterator[Repository]:
    with served(store.handler()) as host:
        yield Repository(Connection(host, lambda: None), "r")


def put(repository: Repository, created: int | str | None, seed: str = "") -> Manifest:
    config = repository.put_blob(canonical({"created": created, "seed": seed}))
    manifest = Manifest(OCI_MANIFEST, canonical({"schemaVersion": 2, "config": {"digest": config}, "layers": []}))
    repository.put_manifest(manifest.digest, manifest)
    return manifest


def test_forward_and_never_back(repository: Repository) -> None:
    lines: list[str] = []
    old, new = put(repository, OLD), put(repository, NEW)
    assert advance_tags(["latest", "2.15"], old.digest, repository, lines.append) == ("latest", "2.15")
    assert advance_tags(["latest"], new.digest, repository, lines.append) == ("latest",)
    assert lines == []
    assert advance_tags(["latest", "2.15"], old.digest, repository, lines.append) == ("2.15",)
    assert repository.head("latest") == new.digest
    assert f":latest stays with {new.digest}, whose sources are of 2026-11-21 08:00 UTC" in lines[0]


def test_a_rebuild_of_the_same_sources_is_no_step_back(repository: Repository) -> None:
    first, second = put(repository, NEW), put(repository, NEW, "rebuilt")
    advance_tags(["latest"], first.digest, repository, print)
    assert advance_tags(["latest"], second.digest, repository, print) == ("latest",)
    assert repository.head("latest") == second.digest


def test_a_tag_at_which_the_registry_fails_is_written_again(
    repository: Repository, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    image = put(repository, OLD)
    advance_tags(["latest"], image.digest, repository, print)
    store.failing["latest"] = 9
    assert advance_tags(["latest"], image.digest, repository, print) == ("latest",)
    assert repository.head("latest") == image.digest


def test_a_short_trouble_takes_no_tag_back(
    repository: Repository, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    old, new = put(repository, OLD), put(repository, NEW)
    advance_tags(["latest"], new.digest, repository, print)
    store.failing["latest"] = 2
    assert advance_tags(["latest"], old.digest, repository, print) == ()
    assert repository.head("latest") == new.digest


@pytest.mark.parametrize("created", [None, "", "yesterday", 3])
def test_what_does_not_say_when_it_was_made_gives_way(created: int | str | None, repository: Repository) -> None:
    advance_tags(["latest"], put(repository, created).digest, repository, print)
    assert advance_tags(["latest"], put(repository, OLD).digest, repository, print) == ("latest",)


def test_an_index_is_as_new_as_its_newest_image(repository: Repository) -> None:
    members = [manifest.descriptor.as_json() for manifest in (put(repository, OLD), put(repository, NEW))]
    index = Manifest(OCI_INDEX, canonical({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": members}))
    repository.put_manifest("joint", index)
    assert created_at(index.digest, repository) == created_at(put(repository, NEW).digest, repository)
