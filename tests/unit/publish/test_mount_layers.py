"""Wheel layers in another repository of a registry are mounted from it, not sent."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.destination import Destination, open_destination
from rdma_images.publish.mount_layers import mount_wheel_layers
from rdma_images.registry.client import Repository, sha256_digest
from rdma_images.registry.connection import Connection
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import Oci
from tests.support.images import planned_image
from tests.support.publish_doubles import Store, served
from tests.support.published_image import approve

BLOBS = {sha256_digest(content): content for content in (b"torch", b"triton", b"nccl")}
ALL = frozenset(BLOBS)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def destination(store: Store) -> Iterator[Destination]:
    with served(store.handler()) as host:
        yield open_destination("team", Oci(kind="oci", host=host, prefix="training", credentials="none"))


def approved(layers_at: str = "") -> ApprovedImage:
    item = approve(planned_image(), f"sha256:{'1' * 64}")
    layers = {digest: len(content) for digest, content in BLOBS.items()}
    build = replace(item.build, layers=layers, layers_at=layers_at)
    return replace(item, build=build, other_targets=("erdma-pytorch", "efa-nccl-tests"))


def run(item: ApprovedImage, destination: Destination, messages: list[str] | None = None) -> frozenset[str]:
    lines: list[str] = messages if messages is not None else []
    return mount_wheel_layers(item, destination, destination.repository(item.image.target), lines.append)


@pytest.mark.parametrize("where", ["cache/layers", "training/wheel-layers", "training/erdma-pytorch"])
def test_layers_are_mounted_from_where_they_are(store: Store, destination: Destination, where: str) -> None:
    store.blobs |= BLOBS
    store.only_in |= dict.fromkeys(BLOBS, where)
    lines: list[str] = []
    assert run(approved(f"{destination.connection.host}/cache/layers"), destination, lines) == ALL
    assert store.only_in == {}
    assert lines == ["team: 0 MB of wheels' layers were in the registry"]
    assert not [request for request in store.requests if request[0] in ("PUT", "PATCH")]


def test_what_the_repository_has_is_asked_for_once(store: Store, destination: Destination) -> None:
    store.blobs |= BLOBS
    assert run(approved(), destination) == frozenset()
    assert [method for method, _ in store.requests] == ["HEAD"] * 3


def test_layers_of_several_places_come_from_each(store: Store, destination: Destination) -> None:
    store.blobs |= BLOBS
    store.only_in |= dict(zip(BLOBS, ("training/wheel-layers", "training/efa-nccl-tests", "else/where"), strict=True))
    assert run(approved("another-host/cache/layers"), destination) == set(list(BLOBS)[:2])


def test_a_registry_that_does_not_mount_is_asked_once(store: Store, destination: Destination) -> None:
    store.blobs |= BLOBS
    store.only_in |= dict.fromkeys(BLOBS, "training/wheel-layers")
    store.mounts = False
    lines: list[str] = []
    assert run(approved(), destination, lines) == frozenset()
    assert [method for method, _ in store.requests if method != "HEAD"] == ["POST"]
    assert "mounts nothing from" in lines[0]


def test_a_registry_that_fails_is_left_to_docker(store: Store, destination: Destination) -> None:
    store.auth = "basic"
    assert run(approved(), destination) == frozenset()


def test_an_image_without_such_layers_asks_nothing(store: Store, destination: Destination) -> None:
    assert run(replace(approved(), build=replace(approved().build, layers={})), destination) == frozenset()
    assert store.requests == []


def test_a_token_for_both_repositories_is_asked_for() -> None:
    store = Store("bearer")
    (digest, content), *_ = BLOBS.items()
    store.blobs[digest] = content
    store.only_in[digest] = "b"
    with served(store.handler()) as host:
        connection = Connection(host, lambda: Login("ci", "secret"))
        assert Repository(connection, "a").mount(digest, Repository(connection, "b"))
    scopes = [" ".join(token["scope"]) for token in store.tokens]
    assert scopes == ["repository:a:pull,push repository:b:pull"]
