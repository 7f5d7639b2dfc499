"""Background processes are found again, and end when they have to."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from rdma_images.engine import process


def test_a_process_outlives_us_and_is_found_again(tmp_path: pathlib.Path) -> None:
    record = tmp_path / "sleeper.json"
    sleeper = process.start(["sleep", "60"], tmp_path / "log", os.environ, record)
    try:
        assert process.recorded(record) == sleeper
        assert os.getsid(sleeper.pid) == sleeper.pid
    finally:
        process.terminate(sleeper, 5)
    assert process.recorded(record) is None


def test_a_later_process_of_the_same_pid_is_another(tmp_path: pathlib.Path) -> None:
    record = tmp_path / "us.json"
    record.write_text(json.dumps({"pid": os.getpid(), "started": 1}))
    assert process.recorded(record) is None
    record.write_text("{half")
    assert process.recorded(record) is None


def test_who_does_not_end_when_asked_is_killed(tmp_path: pathlib.Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    log = tmp_path / "log"
    deaf_process = process.start([sys.executable, "-c", deaf], log, os.environ, tmp_path / "deaf.json")
    while not log.read_text():
        time.sleep(0.02)
    process.terminate(deaf_process, 0.2)
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
            assert [running.pid for running in process.processes_below(tmp_path)] == [child.pid]
            assert child.pid in [running.pid for running in process.children(process.Process(os.getpid(), 0))]
        finally:
            child.kill()
    assert list(process.processes_below(tmp_path)) == []


def test_a_process_of_another_root_is_not_ours(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.copy(sleep(), tmp_path / "sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            # As seen from a chroot: the same path names another file there.
            (tmp_path / "sleep").unlink()
            shutil.copy(sleep(), tmp_path / "sleep")
            monkeypatch.setattr(pathlib.Path, "readlink", lambda _: tmp_path / "sleep")
            assert list(process.processes_below(tmp_path)) == []
        finally:
            child.kill()
