"""The private engine that runs, as its own files and processes describe it."""

import pytest

from rdma_images.engine import daemons, layout, private


def test_an_engine_that_answers_is_described_by_its_packages(
    folders: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.docker.folder.joinpath(".packages.json").write_text(
        '{"docker.io": "26.1.5+dfsg1-9", "docker-buildx": "0.13.1-3"}'
    )
    assert private.running() is None
    monkeypatch.setattr(daemons, "running", lambda _: dict.fromkeys(daemons.DAEMONS, 1))
    assert private.running() is None, "nobody listens at its socket"
    monkeypatch.setattr(daemons, "is_answering", lambda _: True)
    running = private.running()
    assert running
    assert (running.version, running.buildx, running.host) == ("26.1.5+dfsg1-9", "0.13.1-3", folders.host)
    assert running.env["PATH"].startswith(str(folders.docker.folder))
