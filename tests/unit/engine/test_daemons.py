"""Background processes are found again, and end when they have to."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import daemons, layout


def test_a_process_outlives_us_and_is_found_again(folders: layout.Layout) -> None:
    folders.run.mkdir(parents=True)
    program = str(shutil.copy(sleep(), folders.root / "dockerd"))
    sleeper = daemons.start_process([program, "60"], folders.run / "log", os.environ)
    (folders.run / "dockerd.started").write_text(str(sleeper.pid))
    try:
        assert daemons.running(folders) == {"dockerd": sleeper.pid}
        assert os.getsid(sleeper.pid) == sleeper.pid
    finally:
        daemons.terminate(sleeper.pid, 5)
    assert daemons.running(folders) == {}


@pytest.mark.parametrize("record", [str(os.getpid()), "12 half"], ids=["another's pid now", "half of one"])
def test_what_is_not_a_daemon_does_not_run(folders: layout.Layout, record: str) -> None:
    folders.run.mkdir(parents=True)
    (folders.run / "dockerd.started").write_text(record)
    assert daemons.running(folders) == {}


def test_who_does_not_end_when_asked_is_killed(tmp_path: pathlib.Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    log = tmp_path / "log"
    deaf_process = daemons.start_process([sys.executable, "-c", deaf], log, os.environ)
    while not log.read_text():
        time.sleep(0.02)
    daemons.terminate(deaf_process.pid, 0.2)
    assert deaf_process.wait() == -signal.SIGKILL
    daemons.terminate(deaf_process.pid, 0.2)


def sleep() -> str:
    """Return the program of this machine."""
    program = shutil.which("sleep")
    assert program
    return program


def test_processes_are_found_by_the_folder_of_their_program(tmp_path: pathlib.Path) -> None:
    program = shutil.copy(sleep(), tmp_path / "sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            assert daemons.processes_below(tmp_path) == [child.pid]
            assert child.pid in daemons.children(os.getpid())
        finally:
            child.kill()
    assert daemons.processes_below(tmp_path) == []


def test_a_state_folder_behind_a_link_is_the_same(tmp_path: pathlib.Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    program = shutil.copy(sleep(), tmp_path / "disk" / "sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            assert daemons.processes_below(tmp_path / "state") == [child.pid]
        finally:
            child.kill()


def test_a_process_of_another_root_is_not_ours(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.copy(sleep(), tmp_path / "sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            # As seen from a chroot: the same path names another file there.
            (tmp_path / "sleep").unlink()
            shutil.copy(sleep(), tmp_path / "sleep")
            monkeypatch.setattr(pathlib.Path, "readlink", lambda _: tmp_path / "sleep")
            assert daemons.processes_below(tmp_path) == []
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("last", "fix"),
    [("mkdir /s/run: no space left on device", "free disk space there, as with "), ("failed to start", "see ")],
)
def test_a_daemon_that_ended_is_reported_by_its_last_line(tmp_path: pathlib.Path, last: str, fix: str) -> None:
    log = tmp_path / "dockerd.log"
    daemon = daemons.start_process(["/bin/sh", "-c", f"echo first; echo '{last}'"], log, {})
    with pytest.raises(RdmaImagesError) as caught:
        daemons.wait_until_ready(lambda: False, daemon, "dockerd", log)
    line, advice = str(caught.value).splitlines()
    assert line == f"the private engine's dockerd ended, and last wrote: {last}"
    assert advice.startswith(fix)
    assert str(log) in advice
