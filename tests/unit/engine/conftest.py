"""Fixtures for tests of engines: folders of a private one, and a machine without Docker."""

import pathlib

import pytest

from rdma_images.engine import discovery, layout


@pytest.fixture
def folders(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> layout.Layout:
    """Return the folders of a private engine, with the programs that its configuration names."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    parts = layout.layout()
    for folder, program in ((parts.runtime.folder, "usr/bin/tini-static"), (parts.docker.folder, layout.BUILDX)):
        (folder / program).parent.mkdir(parents=True)
        (folder / program).touch()
    return parts


@pytest.fixture
def no_choice(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return the folder in which Docker's settings and socket would be, and are not."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(discovery, "DEFAULT_SOCKET", tmp_path / "docker.sock")
    return tmp_path
