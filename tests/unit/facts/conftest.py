"""The facts of the checkout, loaded once a module."""

import pytest

from rdma_images import facts


@pytest.fixture(scope="module")
def all_facts() -> facts.Facts:
    return facts.load()
