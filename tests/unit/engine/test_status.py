"""The status of the engine: what can be freed, as a table."""

import io
import pathlib
import socket

import pytest
from rich.console import Console

from rdma_images.core import disk_space, locking
from rdma_images.engine import daemon_api, docker_command, layout, private, status


@pytest.mark.parametrize(
    ("obstacle", "answer"),
    [(None, "no private engine runs: `invoke engine.up` starts one"), ("a private one needs root", "needs root")],
)
def test_where_up_is_offered(
    no_choice: pathlib.Path, monkeypatch: pytest.MonkeyPatch, obstacle: str | None, answer: str
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(no_choice))
    monkeypatch.setattr(private, "obstacle", lambda: obstacle)
    assert status.engine_status().problem == f"there is no Docker at {no_choice}/docker.sock, and " + (
        obstacle or answer
    )


def test_what_images_and_cache_take_is_the_most_that_can_be_freed(
    folders: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share layers, and the engine counts these for both."""
    answer = {"LayersSize": 2 * disk_space.GB, "BuildCache": [{"Size": disk_space.GB}]}
    monkeypatch.setattr(daemon_api, "request", lambda *_: answer)
    spaces = status.freeable_space(folders)
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(status.table(status.Status(None, space=spaces)))
    text = console.export_text()
    assert "can be freed: images       at most 2.00 GB: `invoke engine.prune` removes those" in text
    assert "can be freed: build cache  at most 1.00 GB: `invoke engine.prune --cache`" in text


def test_the_status_is_a_table() -> None:
    lab = docker_command.Engine(
        "private", "private", "unix:///s", "26.1", "0.13", "containerd", "host", {"PATH": "/secret"}
    )
    engine_status = status.Status(
        lab,
        folder="/state/engine",
        folder_used=3 * disk_space.GB,
        disk_free=9 * disk_space.GB,
        locks={"build": locking.Holder("a build", 7, "2026-01-01T00:00:00+00:00")},
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(status.table(engine_status))
    text = console.export_text()
    assert "3.00 GB in /state/engine, 9.00 GB free there" in text
    assert "process 7 (a build) since 2026-01-01T00:00:00+00:00" in text
    assert "/secret" not in text


def test_a_silent_daemon_is_no_crash(folders: layout.Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.run.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folders.socket))
        silent.listen()
        monkeypatch.setattr(status, "COUNTING", 0.05)
        assert status.build_cache_bytes(folders) == 0
