"""The private engine's folders, and the configuration of its daemons."""

import json
import pathlib

import pytest

from rdma_images.core import disk_space
from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import layout


def test_a_state_folder_too_long_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", "/tmp/" + "long/" * 20)
    with pytest.raises(RdmaImagesError, match=r"bytes long, and Linux takes 107\nset RDMA_IMAGES_STATE"):
        layout.layout()


def test_the_daemons_keep_to_their_folder(folders: layout.Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "cache_limit", lambda _: 5 << 30)  # what is free changes while others write
    layout.write_configuration(folders)
    daemon = json.loads((folders.root / "daemon.json").read_text())
    for key in ("data-root", "exec-root", "pidfile", "containerd", "init-path"):
        assert daemon[key].startswith(f"{folders.root}/"), key
    assert daemon["hosts"] == [f"unix://{folders.root}/run/docker.sock"]
    assert daemon["features"] == {"containerd-snapshotter": True}
    assert daemon["builder"]["gc"]["enabled"]
    assert daemon["builder"]["gc"]["policy"][0]["keepStorage"] == f"{5 << 30}B"


def test_a_full_disk_is_no_lasting_error_of_containerd(folders: layout.Layout) -> None:
    """It makes this folder at its first write only: later builds failed with 12 GB free."""
    layout.write_configuration(folders)
    root = next(
        line.split('"')[1]
        for line in (folders.root / "containerd.toml").read_text(encoding="utf-8").splitlines()
        if line.startswith("root = ")
    )
    assert pathlib.Path(root, "io.containerd.content.v1.content", "ingest").is_dir()


@pytest.mark.parametrize("before", [None, "", "{}", "not json", '{"auths": {"registry.example": {"auth": "eDp5"}}}'])
def test_the_clients_file_keeps_a_login_and_repairs_the_rest(folders: layout.Layout, before: str | None) -> None:
    folders.docker_config.mkdir(parents=True)
    path = folders.docker_config / "config.json"
    if before is not None:
        path.write_text(before)
    layout.write_configuration(folders)
    config = json.loads(path.read_text())
    assert config["cliPluginsExtraDirs"] == [str((folders.docker.folder / layout.BUILDX).parent)]
    assert ("auths" in config) == ("auths" in (before or ""))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_program_that_is_missing_is_named(folders: layout.Layout) -> None:
    with pytest.raises(RdmaImagesError, match=r"has no dockerd in .*\n.*engine\.down --purge"):
        folders.program("dockerd")
