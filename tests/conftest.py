"""What all tests share."""

import functools
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from rdma_images import engine as engines
from rdma_images.core.errors import RdmaImagesError
from tests.support.leftovers import Snapshot, prune_cache

# Parts of the machine, by the mark `part`: modules of one run one after the other.
FILLING = ("engine", "images", "projects")  # those that fill the builder's cache
BUILDERS = ("engine", "projects")  # both build in the shared engine, in turns: the other validates and runs meanwhile
KEPT_CACHE = 4_000_000_000  # bytes of the builder's cache beside the images
OWN_CACHE = "RDMA_IMAGES_TESTS_OWN_CACHE"  # the variable that tells workers that all in the cache is the tests' own
PART = re.compile(r'pytest\.mark\.part\("([\w-]+)"\)')


@functools.cache
def part(path: Path) -> str:
    """Return the part of the machine that a module shares with others, by its mark, or the module itself.

    The text is read: the process that schedules the workers collects no tests. Raises CollectError for a module in
    e2e/ without the mark: its tests could meet others.
    """
    if "e2e" not in path.parts:
        return str(path)
    if not (mark := PART.search(path.read_text(encoding="utf-8"))):
        raise pytest.Collector.CollectError(f"{path}: no part of the machine: add pytest.mark.part to pytestmark")
    return mark[1]


class ByPart(LoadScopeScheduling):
    """Give each module to one worker, and run one module of a shared part at a time.

    xdist's own groups by mark do nothing under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _part(self, module: str) -> str:
        return part(self.config.rootpath / module)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker its next module together with the last test of the one before.

        It starts no test without the next one, which xdist has it know.
        """
        if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign the first module whose part no other worker has; without one, end the worker."""
        taken = {
            self._part(module)
            for other, modules in self.assigned_work.items()
            for module, is_done in modules.items()
            if other is not node and not all(is_done.values())
        }
        free = next((module for module in self.workqueue if self._part(module) not in taken), None)
        if free is None:
            node.shutdown()
        else:
            self.workqueue.move_to_end(free, last=False)
            super()._assign_work_unit(node)


def pytest_configure(config: pytest.Config) -> None:
    """Restore SIGINT, and give programs that tests start their own temporary folder.

    A shell's background job ignores SIGINT: the tests of Ctrl-C would press it in vain. buildx 0.13 leaves a folder
    behind for each Dockerfile that it reads from its standard input.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # workers have the environment of the process that starts them
        folder = Path(tempfile.mkdtemp(prefix="rdma-images-tests-"))
        folder.chmod(0o1777)  # some tests are another user
        os.environ["TMPDIR"] = str(folder)
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        if config.getoption("--leave-nothing") and (before := Snapshot.take()):
            config.add_cleanup(before.restore)
            if before.had_no_cache:
                os.environ[OWN_CACHE] = "1"


@pytest.fixture(scope="module", autouse=True)
def little_stays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Free, at the end of a module, what would lie there until all tests are done.

    These are the folders of the module's own fixtures, and in the builder's cache what was used least: steps of images
    that are gone. The folders of tests stay where they failed.
    """
    everything = tmp_path_factory.getbasetemp()
    before = set(everything.iterdir())
    yield
    if OWN_CACHE in os.environ and part(request.node.path) in FILLING:
        with suppress(RdmaImagesError):  # of an engine that did not start
            prune_cache(engines.ensure(), KEPT_CACHE)
    for folder in set(everything.iterdir()) - before:
        if not folder.name.startswith("test_"):
            shutil.rmtree(folder, ignore_errors=True)


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Fail for a module that is to name its part of the machine, and does not."""
    part(module_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--leave-nothing", action="store_true", help="remove images, cache and layers that tests made")
    parser.addoption("--update-golden", action="store_true", help="write tests/data/golden/ anew, to be read as a diff")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Return the scheduler that keeps a module, and what its tests share, in one worker."""
    config.option.loadscopereorder = False  # the order of pytest_collection_modifyitems
    return ByPart(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the fast tests first, and let two workers begin with the builds.

    Of the other long tests, those come first whose part has the most: its modules wait for each other, and would be
    the last to end.
    """
    parallel = hasattr(config, "workerinput")
    numbers = Counter(part(item.path) for item in items if item.get_closest_marker("e2e"))
    items.sort(
        key=lambda item: (
            not (parallel and part(item.path) in BUILDERS),
            item.get_closest_marker("e2e") is not None,
            -numbers[part(item.path)],
        )
    )
