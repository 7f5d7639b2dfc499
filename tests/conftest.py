"""What all tests share."""

import signal
from pathlib import PurePath

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

APART = {  # modules with another real part than the shared engine
    "test_datapath": "datapath",
    "test_engine": "another-engine",
    "test_job_run_kubernetes": "kubernetes",
    "test_job_run_slurm": "slurm",
    "test_job_run_ssh": "ssh",
    "test_jobs_mpi": "ssh",
    "test_jobs_pairs": "slurm",
    "test_jobs_scheduler": "kubernetes",
    "test_jobs_slurm": "slurm",
    "test_publish_cosign": "cosign",
}


class ByPart(LoadScopeScheduling):
    """Tests that share a real part are one worker's, one after the other; of the others those of a module.

    xdist's own groups by mark do nothing under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = PurePath(nodeid.partition("::")[0])
        return APART.get(path.stem, "engine") if "e2e" in path.parts else path.stem


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT, and all that it starts does: the tests of Ctrl-C would press in vain."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/data/golden/ anew, to be read as a diff")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Of several workers, one has the shared engine, and one any other module: what its tests share is made once."""
    return ByPart(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast tests first: who broke something learns it in seconds."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)
