"""Disk space is measured and required before the work that needs it."""

import pathlib
import shutil

import pytest

from rdma_images.core import disk_space
from rdma_images.core.errors import RdmaImagesError


def test_missing_disk_space_is_reported_with_numbers_place_and_fix(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    disk_space.require_free_space(1, "nothing much", tmp_path / "not" / "yet")
    with pytest.raises(RdmaImagesError) as caught:
        disk_space.require_free_space(10**18, "building efa-pytorch", tmp_path / "state" / "engine")
    assert f"building efa-pytorch needs 1,000,000,000 GB, and {tmp_path}/state/engine has " in str(caught.value)
    assert "or set RDMA_IMAGES_STATE to a folder on a larger disk" in str(caught.value)
    with pytest.raises(RdmaImagesError, match=r"and .*/docker has .* free\nfree .* there$"):
        disk_space.require_free_space(10**18, "building efa-pytorch", tmp_path / "docker")


def test_the_cache_may_take_a_fifth_of_what_is_free(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"total": 250 * disk_space.GB, "used": 170 * disk_space.GB, "free": 80 * disk_space.GB}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), sizes))
    assert disk_space.cache_limit(tmp_path) == 16 * disk_space.GB
    sizes["free"] = 1000 * disk_space.GB
    assert disk_space.cache_limit(tmp_path) == 40 * disk_space.GB
    sizes["free"] = 10 * disk_space.GB
    assert disk_space.cache_limit(tmp_path) == 8 * disk_space.GB


def test_used_counts_what_is_there(tmp_path: pathlib.Path) -> None:
    assert disk_space.used_bytes(tmp_path / "none") == 0
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert 100_000 <= disk_space.used_bytes(tmp_path) < 200_000
