"""Background processes are found again, and end when they have to."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import daemons


def test_a_process_outlives_us_and_is_found_again(tmp_path: pathlib.Path) -> None:
    record = tmp_path / "sleeper.json"
    sleeper = daemons.start_process(["sleep", "60"], tmp_path / "log", os.environ, record)
    try:
        assert daemons.recorded(record) == sleeper
        assert os.getsid(sleeper.pid) == sleeper.pid
    finally:
        daemons.terminate(sleeper, 5)
    assert daemons.recorded(record) is None


def test_a_later_process_of_the_same_pid_is_another(tmp_path: pathlib.Path) -> None:
    record = tmp_path / "us.json"
    record.write_text(json.dumps({"pid": os.getpid(), "started": 1}))
    assert daemons.recorded(record) is None
    record.write_text("{half")
    assert daemons.recorded(record) is None


def test_who_does_not_end_when_asked_is_killed(tmp_path: pathlib.Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    log = tmp_path / "log"
    deaf_process = daemons.start_process([sys.executable, "-c", deaf], log, os.environ, tmp_path / "deaf.json")
    while not log.read_text():
        time.sleep(0.02)
    daemons.terminate(deaf_process, 0.2)
    assert not deaf_process.is_running()


def sleep() -> str:
    """Return the program of this machine."""
    program = shutil.which("sleep")
    assert program
    return program


def test_processes_are_found_by_the_folder_of_their_program(tmp_path: pathlib.Path) -> None:
    program = shutil.copy(sleep(), tmp_path / "sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            assert [running.pid for running in daemons.processes_below(tmp_path)] == [child.pid]
            assert child.pid in [running.pid for running in daemons.children(daemons.Process(os.getpid(), 0))]
        finally:
            child.kill()
    assert list(daemons.processes_below(tmp_path)) == []


def test_a_process_of_another_root_is_not_ours(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.copy(sleep(), tmp_path / "sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            # As seen from a chroot: the same path names another file there.
            (tmp_path / "sleep").unlink()
            shutil.copy(sleep(), tmp_path / "sleep")
            monkeypatch.setattr(pathlib.Path, "readlink", lambda _: tmp_path / "sleep")
            assert list(daemons.processes_below(tmp_path)) == []
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("last", "fix"),
    [("mkdir /s/run: no space left on device", "free disk space there, as with "), ("failed to start", "see ")],
)
def test_a_daemon_that_ended_is_reported_by_its_last_line(tmp_path: pathlib.Path, last: str, fix: str) -> None:
    log = tmp_path / "dockerd.log"
    daemon = daemons.start_process(["/bin/sh", "-c", f"echo first; echo '{last}'"], log, {}, tmp_path / "dockerd.json")
    with pytest.raises(RdmaImagesError) as caught:
        daemons.wait_until_ready(lambda: False, daemon, "dockerd", log)
    line, advice = str(caught.value).splitlines()
    assert line == f"the private engine's dockerd ended, and last wrote: {last}"
    assert advice.startswith(fix)
    assert str(log) in advice
