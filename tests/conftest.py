"""What all tests share."""

import signal


def pytest_configure():
    """A shell's background job ignores SIGINT, and all that it starts does: the tests of Ctrl-C would press in vain."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write tests/data/golden/ anew, to be read as a diff")


def pytest_collection_modifyitems(items):
    """The fast tests first: who broke something learns it in seconds."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)
