"""One at a time, and nobody stopped by the dead."""

import errno
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from rdma_images.core import locking
from rdma_images.core.errors import RdmaImagesError

pytestmark = pytest.mark.usefixtures("state")
HOLD = """
import time
from rdma_images.core import locking

with locking.hold("build", "a build"):
    print("mine", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holding_process() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def test_who_holds_it_is_named_with_pid_and_time(holding_process: subprocess.Popen[str]) -> None:
    with pytest.raises(
        RdmaImagesError, match=rf"build is held by process {holding_process.pid} \(a build\) since 20\d\d-"
    ):
        locking.hold("build", "ours", timeout=0).__enter__()


def test_the_second_waits_names_the_holder_and_continues(holding_process: subprocess.Popen[str]) -> None:
    lines: list[str] = []

    def end_the_holder(line: str) -> None:
        lines.append(line)
        holding_process.kill()

    with locking.hold("build", "ours", end_the_holder):
        assert "(ours)" in str(locking.holders()["build"])
    assert lines == [
        f"waiting for build: held by process {holding_process.pid} (a build) since {lines[0].rpartition(' ')[2]}"
    ]


def test_a_killed_holder_stops_nobody(holding_process: subprocess.Popen[str], state: Path) -> None:
    holding_process.kill()
    holding_process.wait()
    assert (state / "locks" / "build").exists()
    assert locking.holders() == {}
    with locking.hold("build", "ours", timeout=0):
        assert list(locking.holders()) == ["build"]


def test_who_asks_for_holders_stops_nobody() -> None:
    """It takes each lock for a moment."""
    locking.lock_path("job").parent.mkdir(parents=True)
    asking = FileLock(locking.lock_path("job"), thread_local=False)
    asking.acquire()
    threading.Timer(0.1, asking.release).start()
    with locking.hold("job", "ours", timeout=0):
        assert list(locking.holders()) == ["job"]


def test_a_lock_on_a_full_disk_is_held_without_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """What frees the disk takes locks, too."""

    def no_space(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", no_space)
    with locking.hold("build", "pruning"):
        assert locking.lock_path("build").exists()
        refusal = pytest.raises(RdmaImagesError, match="build is held by another process")
        with refusal, locking.hold("build", "a build", timeout=0):
            pass
