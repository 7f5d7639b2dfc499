"""locks/layers.yaml: made layers are compared with it, and registries asked by it."""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.inputs import lock as wheel_lock
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.relock import LockOutcome
from rdma_images.inputs.wheels import Lock
from rdma_images.layers import layer_store, lock_layers, locked_digests, remote_layers
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.load_layers import LayerSet
from rdma_images.layers.recipe import Recipe
from rdma_images.publish.destination import layers_repository
from rdma_images.render.bake import Compression
from tests.support import layer_wheels
from tests.support.images import planned_image
from tests.support.publish_doubles import Store, served
from tests.unit.core.test_locking import HOLD
from tests.unit.layers.test_layer_store import MIRRORS

COMMITTED = paths.LOCKS / locked_digests.NAME


@dataclass
class WheelImage:
    """An image of one wheel, and a package index that has the wheel."""

    image: Image
    folder: Path
    recipe: Recipe
    index: str

    def with_files(self, files: dict[str, bytes]) -> "WheelImage":
        """Return the same image with a wheel of other files, which is in its lock from now on."""
        folder = self.folder / str(len(list(self.folder.iterdir())))
        wheel = layer_wheels.make(folder, files=files)
        request = Lock(request=wheel_lock.lock_request(self.image), wheels=(layer_wheels.locked(wheel),))
        file = wheel_lock.lock_path(request.request)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(request.text())
        recipe = Recipe("wheels-small", request.wheels, "zstd")
        return replace(self, recipe=recipe, index=layer_wheels.index(folder / "index", wheel))

    def lock(self, compression: Compression = "zstd", progress: Progress = silent) -> LockOutcome:
        mirrors = Mirrors(MIRRORS.ca_bundle, {"index": (self.index, "")})
        return lock_layers.lock([self.image], mirrors, compression, progress)

    def make(self) -> None:
        with LayerPool([self.recipe], self.index, MIRRORS, locked=locked_digests.read_digests()) as pool:
            pool.layer_future(self.recipe).result()


@pytest.fixture
def wheel_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelImage:
    """Locked in a folder that is empty otherwise; no layer is made yet."""
    monkeypatch.setattr(paths, "LOCKS", tmp_path / "locks")
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    folder = tmp_path / "wheels"
    folder.mkdir()
    small_image = planned_image({"pytorch": None, "nccl": None}, python_packages=("thing",))
    empty = WheelImage(small_image, folder, Recipe("", (), "zstd"), "")
    return empty.with_files({"thing/x.py": b"1", "thing/lib.a": b"2"})


def change(old: str, new: str) -> None:
    file = paths.LOCKS / locked_digests.NAME
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_what_is_made_is_written_down_and_kept(wheel_image: WheelImage) -> None:
    assert wheel_image.lock().outcome == "new"
    layer = layer_store.find(wheel_image.recipe)
    assert layer
    assert locked_digests.read_digests().blob(wheel_image.recipe, "runtime") == layer.runtime
    assert locked_digests.read_digests().blob(wheel_image.recipe, "devel") == layer.devel
    text = (paths.LOCKS / locked_digests.NAME).read_text()
    assert "wheels: thing-1.0-py3-none-any.whl" in text
    assert f"toc: {layer.runtime.toc}" in text
    assert max(map(len, text.splitlines())) < 120
    again = replace(wheel_image, index="file:///nothing").lock()
    assert (again.outcome, again.detail) == ("kept", "1 known")
    assert (paths.LOCKS / locked_digests.NAME).read_text() == text


def test_layers_are_locked_after_the_build_of_another_process(wheel_image: WheelImage) -> None:
    """Both make layers, and each removes the wheels of its own, which the other may read."""
    waited = []
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as build:
        assert build.stdout
        assert build.stdout.readline() == "mine\n"

        def progress(line: str) -> None:
            if line.startswith("waiting for build: "):
                waited.append(line)
                assert not layer_store.root().exists()
                build.kill()

        outcome = wheel_image.lock(progress=progress).outcome
    assert (outcome, len(waited)) == ("new", 1)


def test_what_no_lock_needs_any_more_is_forgotten(wheel_image: WheelImage) -> None:
    wheel_image.lock("gzip")
    wheel_image.lock()
    after = wheel_image.with_files({"thing/y.py": b"3"})
    after.lock()
    locked = locked_digests.read_digests()
    assert locked.blob(wheel_image.recipe, "runtime") is None
    assert locked.blob(replace(wheel_image.recipe, compression="gzip"), "runtime"), "only zstd was locked again"
    assert locked.blob(after.recipe, "runtime")


def test_a_layer_that_another_lock_needs_stays(wheel_image: WheelImage) -> None:
    wheel_image.lock()
    second = wheel_image.with_files({"thing/y.py": b"3"})
    second.make()
    layer = layer_store.find(second.recipe)
    assert layer
    locked_digests.save({second.recipe: layer}, {wheel_image.recipe.key, second.recipe.key})
    for recipe in (wheel_image.recipe, second.recipe):
        assert locked_digests.read_digests().blob(recipe, "runtime")


@pytest.mark.parametrize("is_stored", [False, True], ids=["made now", "made before"])
def test_a_layer_that_differs_from_the_lock_is_an_error(
    wheel_image: WheelImage, tmp_path: Path, is_stored: bool
) -> None:
    wheel_image.lock()
    layer = layer_store.find(wheel_image.recipe)
    assert layer
    change(layer.runtime.digest, wrong := f"sha256:{'0' * 64}")
    if not is_stored:
        (tmp_path / "state").rename(tmp_path / "elsewhere")
    with pytest.raises(RdmaImagesError) as raised:
        wheel_image.make()
    first, fix = str(raised.value).splitlines()
    assert first == (
        f"wheels-small (runtime): this machine made {layer.runtime.digest} of the wheels of which "
        f"{paths.LOCKS / locked_digests.NAME} has {wrong}"
    )
    assert fix.startswith(f"remove {layer_store.folder(layer.key)} and build again; ")
    assert f"remove {wheel_image.recipe.key} from the file" in fix


def test_a_registry_is_asked_for_locked_digests_alone(
    wheel_image: WheelImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel_image.lock()
    stored_layer = layer_store.find(wheel_image.recipe)
    assert stored_layer
    registry = Store()
    # As a published image leaves it there: a blob, and no tag of ours.
    registry.blobs[stored_layer.runtime.digest] = stored_layer.file("runtime").read_bytes()
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "other"))
    with served(registry.handler()) as host:
        repository = layers_repository(f"{host}/team/efa-pytorch")
        remote_layer_set = remote_layers.query_registry(
            LayerSet((wheel_image.recipe,), "runtime", "linux/amd64"), repository, locked_digests.read_digests()
        )
        assert remote_layer_set.missing == ()
        with LayerPool(remote_layer_set.missing, "file:///nothing", MIRRORS) as pool:
            remote = remote_layers.complete_registry(remote_layer_set, pool, repository)
        assert remote.blobs == (stored_layer.runtime,)
        (layer,) = repository.manifest(remote.ref.rpartition("@")[2]).layers()
    assert (layer.digest, layer.size) == (stored_layer.runtime.digest, stored_layer.runtime.size)
    assert not layer_store.root().exists()


def test_a_registry_s_other_layer_is_not_taken_by_who_has_the_lock(
    wheel_image: WheelImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel_image.lock()
    layer = layer_store.find(wheel_image.recipe)
    assert layer
    layer_set = LayerSet((wheel_image.recipe,), "runtime", "linux/amd64")
    with served(Store().handler()) as host:
        repository = layers_repository(f"{host}/team/layers")
        with LayerPool([wheel_image.recipe], wheel_image.index, MIRRORS) as pool:
            remote_layers.complete_registry(remote_layers.query_registry(layer_set, repository), pool, repository)
        monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "other"))
        change(layer.runtime.digest, right := f"sha256:{'0' * 64}")
        with pytest.raises(RdmaImagesError, match=rf"wheels-small is {layer.runtime.digest} there, .*has {right}\n"):
            remote_layers.query_registry(layer_set, repository, locked_digests.read_digests())


def test_a_damaged_file_is_named_with_its_line(wheel_image: WheelImage) -> None:
    wheel_image.lock()
    change("digest: sha256:", "digest: sha255:")
    with pytest.raises(RefusedError, match=r"layers\.yaml:\d+: .*no digest: write sha256:"):
        locked_digests.read_digests()


def test_the_committed_file_is_as_it_is_written() -> None:
    loaded = yaml_file.load(COMMITTED, locked_digests.LayersLock).layers
    assert locked_digests.serialize_layers(loaded) == COMMITTED.read_text()
