"""One at a time, and nobody stopped by the dead."""

import subprocess
import sys
import threading

import pytest

from rdma_images.engine import turn
from rdma_images.errors import RdmaImagesError

HOLD = """
import time
from rdma_images.engine import turn

with turn.take("build", "a build"):
    print("mine", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    return tmp_path


@pytest.fixture
def other():
    """Another process that holds the turn."""
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def test_who_holds_it_is_named_with_pid_and_time(other):
    with pytest.raises(RdmaImagesError, match=rf"build is held by process {other.pid} \(a build\) since 20\d\d-"):
        turn.take("build", "ours", patience=0).__enter__()


def test_the_second_waits_says_for_whom_and_then_goes_on(other):
    lines = []
    threading.Timer(0.3, other.kill).start()
    with turn.take("build", "ours", lines.append):
        assert turn.holder("build").what == "ours"
    assert lines == [f"waiting for build: held by process {other.pid} (a build) since {lines[0].rpartition(' ')[2]}"]


def test_a_killed_holder_stops_nobody(other, state):
    other.kill()
    other.wait()
    assert (state / "turns" / "build").exists()
    assert turn.holder("build") is None
    with turn.take("build", "ours", patience=0):
        assert list(turn.holders()) == ["build"]


def test_no_file_stays(state):
    with turn.take("build", "ours"):
        pass
    with pytest.raises(ZeroDivisionError), turn.take("build", "ours"):
        raise ZeroDivisionError
    assert list((state / "turns").iterdir()) == []
    assert turn.holders() == {}


def test_two_turns_do_not_know_each_other():
    with turn.take("build", "ours", patience=0), turn.take("engine", "ours", patience=0):
        assert list(turn.holders()) == ["build", "engine"]
