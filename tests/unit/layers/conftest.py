"""Fixtures of the tests of layers in a registry."""

from collections.abc import Iterator

import pytest

from rdma_images.publish.destination import layers_repository
from rdma_images.registry.client import Repository
from tests.support.publish_doubles import Store, served


@pytest.fixture
def registry() -> Store:
    return Store()


@pytest.fixture
def repository(registry: Store) -> Iterator[Repository]:
    with served(registry.handler()) as host:
        yield layers_repository(f"{host}/team/layers")
