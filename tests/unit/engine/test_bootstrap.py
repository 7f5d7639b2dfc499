"""Debian is bootstrapped where that is possible, and refused with a reason elsewhere."""

import json
import os
import pathlib

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine.debian import bootstrap


def test_a_base_made_by_another_recipe_is_not_taken(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "x.tar").touch()
    card = {"name": "debian13", "suite": "trixie", "archive": "a", "mmdebstrap": "1", "tar": "x.tar"}
    path = tmp_path / "bases" / "debian13.json"
    path.write_text(json.dumps(card | {"recipe": bootstrap.recipe_digest("debian13")}))
    recorded = bootstrap.last_bootstrapped("debian13")
    assert recorded
    assert recorded.tar == "x.tar"
    path.write_text(json.dumps(card | {"recipe": "older"}))
    assert bootstrap.last_bootstrapped("debian13") is None


@pytest.mark.parametrize(("uid", "options"), [(0, ["--mount"]), (1001, ["--user", "--map-root-user", "--map-auto"])])
def test_a_base_is_bootstrapped_in_the_namespace_of_its_user(
    uid: int, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdma_images.engine.debian.bootstrap.os.geteuid", lambda: uid)
    assert list(bootstrap.namespace_command())[1 : len(options) + 1] == options


def test_a_user_without_a_namespace_is_told_before_anything_is_fetched(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    monkeypatch.setattr("rdma_images.engine.debian.host_apt.host_archives", lambda: None)
    (tmp_path / "unshare").write_text("#!/bin/sh\necho 'unshare: newuidmap: No such file' >&2; exit 126\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("rdma_images.engine.debian.bootstrap.os.geteuid", lambda: 1001)
    bootstrap.namespace_obstacle.cache_clear()
    try:
        assert not bootstrap.is_possible("debian13", "linux/amd64")
        expected = r"bootstrapped: bootstrapping without root needs Debian's package uidmap.*newuidmap.*\nrun as root"
        with pytest.raises(RdmaImagesError, match=expected):
            bootstrap.base_tar("debian13")
    finally:
        bootstrap.namespace_obstacle.cache_clear()
    assert not (tmp_path / "debian").exists()


def test_what_a_refused_unshare_leaves_behind_is_ended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a chroot util-linux 2.38 leaves a helper that waits forever and holds stderr open."""
    late = tmp_path / "late"
    (tmp_path / "unshare").write_text(f"#!/bin/sh\n(sleep 20; touch {late}) &\necho not permitted >&2; exit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("rdma_images.engine.debian.bootstrap.os.geteuid", lambda: 1001)
    bootstrap.namespace_obstacle.cache_clear()
    try:
        assert str(bootstrap.namespace_obstacle()).endswith("(not permitted)")
    finally:
        bootstrap.namespace_obstacle.cache_clear()
    assert not late.exists()
