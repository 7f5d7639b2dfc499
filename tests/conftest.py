"""What all tests share."""


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write tests/data/golden/ anew, to be read as a diff")
