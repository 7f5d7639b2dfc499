"""What all tests share."""


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write tests/data/golden/ anew, to be read as a diff")


def pytest_collection_modifyitems(items):
    """The fast tests first: who broke something learns it in seconds."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)
