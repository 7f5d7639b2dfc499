"""Fixtures of tests in several packages."""

from collections.abc import Iterator

import pytest

from tests.support.loopback import Site, serve


@pytest.fixture
def site() -> Iterator[Site]:
    """Yield a web server on the loopback interface."""
    with serve() as running:
        yield running
