"""A layer is made once, and is complete or absent; wheels are verified, and not kept."""

import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.inputs import download, wheel_files
from rdma_images.inputs.download import ChecksumError, DownloadSettings
from rdma_images.layers import layer_pool, layer_store, make_wheel_layer
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.recipe import Recipe
from tests.support import layer_wheels
from tests.support.layer_wheels import BLOB, MIRRORS, SIZE, fill
from tests.support.loopback import Answer, Site


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(download, "PAUSE", 0.01)
    return tmp_path / "state"


def recipe(*wheels: Path) -> Recipe:
    return Recipe("wheel-thing", tuple(map(layer_wheels.locked, wheels)), "zstd")


def test_a_layer_is_made_once_from_the_index_and_the_wheel_is_not_kept(tmp_path: Path, state: Path) -> None:
    wheel = layer_wheels.make(tmp_path / "wheels", files={"thing/x.py": b"1", "thing/lib.a": b"2"})
    index = layer_wheels.index(tmp_path / "index", wheel)
    layer_recipe = recipe(wheel)
    with LayerPool([layer_recipe], index, MIRRORS) as pool:
        layer = pool.layer_future(layer_recipe).result()
    assert layer.runtime.size == layer.file("runtime").stat().st_size
    assert layer.devel.size == layer.file("devel").stat().st_size
    assert set(layer.paths()) >= {"opt/venv/site-packages/thing/x.py"}
    assert not list((state / "downloads" / "sha256").glob("*"))
    wheel.unlink()
    with LayerPool([layer_recipe], index, MIRRORS) as pool:
        assert pool.layer_future(layer_recipe).result() == layer


def test_a_killed_maker_leaves_no_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_pool, "MIN_PROCESS_BYTES", 0)
    wheel = layer_wheels.make(tmp_path / "wheels")
    index = layer_wheels.index(tmp_path / "index", wheel)
    layer_recipe = recipe(wheel)
    with LayerPool([layer_recipe], index, MIRRORS) as pool:
        while not (makers := multiprocessing.active_children()):
            time.sleep(0.001)
        for entry in makers:
            entry.kill()
        with pytest.raises(RdmaImagesError, match=r"wheel-thing: the process .* was ended from outside; nothing"):
            pool.layer_future(layer_recipe).result()
    assert layer_store.find(layer_recipe) is None
    with LayerPool([layer_recipe], index, MIRRORS) as pool:
        assert pool.layer_future(layer_recipe).result() == layer_store.find(layer_recipe)


def test_what_a_killed_build_left_is_no_layer(tmp_path: Path) -> None:
    layer_recipe = recipe(layer_wheels.make(tmp_path))

    def interrupted(folder: Path) -> None:
        fill(folder)
        os._exit(9)

    killed = multiprocessing.get_context("fork").Process(
        target=lambda: layer_store.get_or_build(layer_recipe, interrupted)
    )
    killed.start()
    killed.join()
    assert list(layer_store.root().iterdir())
    assert layer_store.find(layer_recipe) is None
    assert layer_store.get_or_build(layer_recipe, fill).runtime == BLOB
    assert [path.name for path in layer_store.root().iterdir()] == [layer_recipe.key]


def test_two_builds_at_once_make_a_layer_once(tmp_path: Path) -> None:
    layer_recipe = recipe(layer_wheels.make(tmp_path))
    times = []

    def make(folder: Path) -> None:
        times.append(folder)
        time.sleep(0.1)
        fill(folder)

    threads = [threading.Thread(target=layer_store.get_or_build, args=(layer_recipe, make)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 1


def test_the_layers_that_nobody_used_go_first(tmp_path: Path) -> None:
    layer_recipe = [recipe(layer_wheels.make(tmp_path / str(n), files={f"thing/{n}.py": b""})) for n in range(3)]
    now = time.time()
    for number, request in enumerate(layer_recipe):
        layer_store.get_or_build(request, fill)
        used = now - 1_000_000 * (1 + number)
        os.utime(layer_store.folder(request.key) / make_wheel_layer.RECORD_FILE, (used, used))
    layer_store.find(layer_recipe[2])  # used now
    assert layer_store.trim(2 * SIZE, now) == (layer_recipe[1].key,)
    assert layer_store.trim(0, now) == (layer_recipe[0].key,)
    assert layer_store.find(layer_recipe[2]) is not None


def test_a_layer_that_the_engine_has_too_is_kept(tmp_path: Path) -> None:
    layer_recipe = recipe(layer_wheels.make(tmp_path))
    linked = layer_store.get_or_build(layer_recipe, fill).file("runtime")
    os.utime(layer_store.folder(layer_recipe.key) / make_wheel_layer.RECORD_FILE, (0, 0))
    (tmp_path / "engine's").hardlink_to(linked)
    assert not layer_store.trim(0)
    (tmp_path / "engine's").unlink()
    assert layer_store.trim(0) == (layer_recipe.key,)


def test_a_truncated_wheel_is_not_taken(tmp_path: Path, state: Path) -> None:
    wheel = layer_wheels.make(tmp_path / "wheels")
    locked = layer_wheels.locked(wheel)
    index = layer_wheels.index(tmp_path / "index", wheel)
    wheel.write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(ChecksumError, match=rf"is not the pinned file: expected sha256:{locked.sha256}, found"):
        wheel_files.fetch_wheel(locked, index, DownloadSettings(locked.file, MIRRORS))
    assert not list((state / "downloads" / "sha256").glob("*"))


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (f'<a href="/thing-1.0.tar.gz#sha256={"0" * 64}">x</a>', "has no such file"),
        ("<p>sign in</p>", "there is no version of thing==1.0"),
        (None, "thing was not found in the package registry"),
    ],
)
def test_an_index_without_the_wheel_is_reported(tmp_path: Path, site: Site, page: str | None, expected: str) -> None:
    locked = layer_wheels.locked(layer_wheels.make(tmp_path))
    if page:
        site.answers["/thing/"] = Answer(page.encode(), headers={"Content-Type": "text/html"})
    with pytest.raises(RdmaImagesError, match=expected) as raised:
        wheel_files.wheel_address(locked, site.address, MIRRORS)
    assert "as package-index" in str(raised.value).splitlines()[1]
