"""A wheel is the same layer everywhere, and a change runs only steps that depend on it."""

import errno
import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest

from rdma_images import engine
from rdma_images.core import disk_space, paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import LAYERS_LABEL
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.engine import Engine, docker_command
from rdma_images.engine.layout import layout
from rdma_images.inputs.wheels import Wheel
from rdma_images.layers import engine_layers, layer_store, private_engine_pull, registry_layers
from rdma_images.layers.layer_image import LayerSet
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.recipe import Recipe, compressor, layer_recipe
from rdma_images.publish.destination import layers_repository
from rdma_images.registry.client import Repository
from rdma_images.registry.connection import Connection
from rdma_images.registry.credentials import Login
from rdma_images.render import bake, wheel_layers
from tests.e2e import private_engine
from tests.e2e.layer_parts import SmallBuild, ran, remote_builder, standing, wheel
from tests.e2e.publish_parts import PASSWORD, USER, Registry, registry_program, second_engine
from tests.support import layer_wheels, real_parts
from tests.support.layer_wheels import MIRRORS

pytestmark = [pytest.mark.e2e, pytest.mark.part("engine"), private_engine.needs]

ROOM = 10_000_000_000  # bytes of cache that these builds may fill
NEW, OLD = "2.15.0", "2.14.1"
LARGE = ("nvidia-nvjitlink", "nvidia-cuda-nvrtc")
FEW = (*LARGE, "jinja2", "markupsafe")


def wheels(torch: str = NEW, base: str = "debian13") -> list[Wheel]:
    return [wheel(name, torch, base) for name in FEW]


def make_room(running: engine.Engine) -> None:
    """Make room in the cache: in a full one BuildKit drops each step as soon as it ran."""
    room = max(disk_space.cache_limit(layout().root) - ROOM, 0)
    command = ["docker", "buildx", "prune", "--force", "--all", "--keep-storage", str(room)]
    subprocess.run(command, env=running.environ(), check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def small() -> SmallBuild:
    running = engine.ensure()
    make_room(running)
    return SmallBuild(running)


@pytest.fixture(autouse=True)
def nothing_stays(small: SmallBuild) -> Iterator[None]:
    yield
    for name in ("small", "other"):
        shutil.rmtree(paths.image_folder(f"test-{name}"), ignore_errors=True)
        small.forget(name)


def test_a_second_engine_takes_the_layers_from_a_registry(small: SmallBuild, tmp_path: Path) -> None:
    registry = Registry(registry_program(), tmp_path / "registry").start()
    repository = Repository(Connection(registry.host, lambda: Login(USER, PASSWORD)), "cache/layers")
    ours = small.layers(small.build(small.spec(wheels()), layers=repository))
    with second_engine() as second:
        other = SmallBuild(second)
        ref = other.build(other.spec(wheels()), layers=repository)
        assert other.layers(ref)[: len(LARGE) + 1] == ours[: len(LARGE) + 1]
        assert not list(paths.state_folder().rglob("*.whl"))
        assert not layer_store.root().exists()
        noted = BUILD_FILE.read("test-small")
        assert noted
        assert (list(noted.layers), noted.layers_at) == (ours[: len(LARGE) + 1], repository.ref)
    registry.kill()


@pytest.mark.real
@pytest.mark.skipif(not real_parts.program("buildkitd"), reason=f"{real_parts.VARIABLE} has no buildkitd")
def test_a_remote_builder_gets_no_wheel(small: SmallBuild, tmp_path: Path) -> None:
    registry = Registry(registry_program(), tmp_path / "registry", password=False).start()
    repository = layers_repository(f"{registry.host}/cache/layers")
    ours = small.layers(small.build(small.spec(wheels()), layers=repository))
    number = len(LARGE) + 1
    with remote_builder(small.engine, registry.host) as builder:
        theirs = small.layers(small.build(small.spec(wheels()), layers=repository, builder=builder))
    assert ours[:number] == theirs[:number]
    assert "with-efa-installer 1/2" in ran()
    assert not [step for step in ran() if step.startswith("wheel")]
    registry.kill()


def test_layers_come_back_from_another_builder_as_they_were(small: SmallBuild, tmp_path: Path) -> None:
    registry = Registry(registry_program(), tmp_path / "registry", password=False).start()
    file = layer_wheels.make(tmp_path / "wheels", files={"thing/x.py": uuid.uuid4().bytes})
    recipe = Recipe("wheel-thing", (layer_wheels.locked(file),), "zstd")
    repository = layers_repository(f"{registry.host}/cache/layers")
    with LayerPool([recipe], layer_wheels.index(tmp_path / "index", file), MIRRORS) as pool:
        layer_set = LayerSet((recipe,), "runtime", "linux/amd64")
        remote = registry_layers.complete_registry(
            registry_layers.query_registry(layer_set, repository), pool, repository
        )
    (tmp_path / "Dockerfile").write_text("FROM wheels\nCOPY Dockerfile /\n")
    ref, archive = "rdma-images-test/returned:small", tmp_path / "image.tar"
    for command in (
        [
            *("docker", "buildx", "build", "--quiet", "--provenance=false", str(tmp_path)),
            f"--build-context=wheels=docker-image://{remote.ref}",
            f"--output={bake.bake_output(ref, 'containerd', 'far', 'zstd')},dest={archive}",
        ],
        ["docker", "image", "load", "--input", str(archive)],
    ):
        subprocess.run(command, env=small.engine.environ(), check=True, capture_output=True)
    registry.kill()
    assert small.layers(ref)[0] == remote.blobs[0].digest
    subprocess.run(["docker", "image", "rm", ref], env=small.engine.environ(), check=True, capture_output=True)


@dataclass(frozen=True)
class New:
    """A layer that no engine has, and how it comes there."""

    layers: LayerSet
    index: str

    @property
    def file(self) -> Path:
        layer = layer_store.find(self.layers.recipes[0])
        assert layer
        return layer.file(self.layers.variant)

    def make(self) -> None:
        with self.pool() as pool:
            pool.layer_future(self.layers.recipes[0]).result()

    def pool(self) -> LayerPool:
        return LayerPool(self.layers.recipes, self.index, MIRRORS)

    def brought_to(self, receiving_engine: Engine) -> str:
        """Return the digest of the layer, with which the engine got it and keeps it."""
        with self.pool() as pool:
            loaded = engine_layers.load_image(self.layers, pool, receiving_engine, engine_layers.EngineLayers())
        assert SmallBuild(receiving_engine).layers(loaded.ref) == [loaded.blobs[0].digest]
        docker_command.remove_images(receiving_engine, loaded.ref)
        return loaded.blobs[0].digest


@pytest.fixture
def new(small: SmallBuild, tmp_path: Path) -> Iterator[New]:
    if small.engine.kind != "private":
        pytest.skip("the private engine does not run: another one is here")
    file = layer_wheels.make(tmp_path / "wheels", files={"thing/x.py": uuid.uuid4().bytes})
    recipe = Recipe("wheel-thing", (layer_wheels.locked(file),), "zstd")
    layer = New(LayerSet((recipe,), "runtime", "linux/amd64"), layer_wheels.index(tmp_path / "index", file))
    layer.make()
    yield layer
    shutil.rmtree(layer_store.folder(recipe.key), ignore_errors=True)


def test_the_private_engine_keeps_the_layer_s_own_file(
    small: SmallBuild, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    def forgotten(_: Engine, *refs: str) -> None:
        lines.extend(refs)

    with monkeypatch.context() as patched:
        patched.setattr(docker_command, "remove_images", forgotten)
        digest = new.brought_to(small.engine)
    assert new.file.samefile(private_engine_pull.blob_file(digest))
    docker_command.remove_images(small.engine, *lines)


def test_an_empty_layer_of_buildkit_s_is_not_taken_for_ours(small: SmallBuild, tmp_path: Path) -> None:
    """BuildKit compresses its own empty layers: of two with one diff id one would be lost."""
    file = layer_wheels.make(tmp_path / "wheels", files={"thing/x.py": uuid.uuid4().bytes})
    recipe = Recipe("wheel-thing", (layer_wheels.locked(file),), "zstd")
    label = f"LABEL {LAYERS_LABEL}='{compressor('zstd')}'"
    (tmp_path / "Dockerfile").write_text(f"FROM scratch\n{label}\nCOPY --from=none / /\n")
    ref = "rdma-images-test/empty:layer"
    output = bake.bake_output(ref, "containerd", None, "zstd")
    (tmp_path / "none").mkdir()
    command = ["docker", "buildx", "build", "--quiet", "--provenance=false", f"--output={output}", str(tmp_path)]
    command.append(f"--build-context=none={tmp_path / 'none'}")
    subprocess.run(command, env=small.engine.environ(), check=True, capture_output=True)
    inspect = ["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", ref]
    inspected = subprocess.run(inspect, env=small.engine.environ(), check=True, capture_output=True)
    layers = engine_layers.read_engine_layers(small.engine, "zstd")
    with LayerPool([recipe], layer_wheels.index(tmp_path / "index", file), MIRRORS) as pool:
        blob = pool.layer_future(recipe).result().blob("devel")
        assert blob.diff_id not in json.loads(inspected.stdout)
        devel = LayerSet((recipe,), "devel", "linux/amd64")
        loaded = engine_layers.load_image(devel, pool, small.engine, layers)
    assert small.layers(loaded.ref) == [blob.digest]
    docker_command.remove_images(small.engine, loaded.ref, ref)
    shutil.rmtree(layer_store.folder(recipe.key), ignore_errors=True)


@pytest.mark.parametrize("kind", ["private", "existing"])
def test_an_engine_that_cannot_be_given_the_file_reads_it(
    small: SmallBuild, new: New, monkeypatch: pytest.MonkeyPatch, kind: Literal["private", "existing"]
) -> None:
    def refuse(*_: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    new.brought_to(replace(small.engine, kind=kind))


@pytest.mark.parametrize("kind", ["private", "existing"])
def test_a_damaged_layer_is_reported_and_made_anew(
    small: SmallBuild, new: New, kind: Literal["private", "existing"]
) -> None:
    private_engine = replace(small.engine, kind=kind)
    content = bytearray(new.file.read_bytes())
    content[len(content) // 2] ^= 1
    new.file.write_bytes(content)
    with pytest.raises(RdmaImagesError, match="runtime: this layer was damaged after it was written, and is removed"):
        new.brought_to(private_engine)
    assert layer_store.find(new.layers.recipes[0]) is None
    new.brought_to(private_engine)


def test_a_blob_of_the_engine_s_own_is_not_taken_back(new: New) -> None:
    digest = f"sha256:{uuid.uuid4().hex}"
    blob = private_engine_pull.blob_file(digest)
    blob.write_bytes(b"another file")
    private_engine_pull.unlink_blob(new.file, digest)
    assert blob.exists()
    blob.unlink()


@pytest.mark.exhaustive
def test_a_layer_is_the_same_on_another_base_with_another_python(small: SmallBuild) -> None:
    every_python = [wheel(name, OLD, "debian13") for name in (*LARGE, "jinja2")]
    number = len(every_python)
    trixie = small.layers(small.build(small.spec(every_python, f"pytorch={OLD}")))
    checkout = standing("ubuntu22.04", "debian12")
    other = small.spec(every_python, f"pytorch={OLD}", "base=ubuntu22.04", name="other", checkout=checkout)
    bookworm = small.layers(small.build(other, checkout))
    assert "python 3.11" in other.dockerfile.read_text()
    assert trixie[:number] == bookworm[:number]
    assert trixie[number:] != bookworm[number:]


def test_the_layers_made_here_are_the_image_s_lowest(small: SmallBuild) -> None:
    spec = small.spec(wheels())
    descriptors = small.descriptors(small.build(spec))
    layers = [layer_store.find(layer_recipe(layer, "zstd")) for layer in wheel_layers.wheel_layers(spec.lock)]
    lowest = descriptors[: len(layers)]
    assert [layer and layer.runtime.digest for layer in layers] == [layer["digest"] for layer in lowest]
    # By these a node reads the layers in part, and BuildKit keeps them.
    assert [layer and layer.runtime.annotations for layer in layers] == [layer["annotations"] for layer in lowest]


@pytest.mark.exhaustive  # one more compression; tests/unit/layers make layers of both
def test_gzip_layers_are_kept_as_they_were_made(small: SmallBuild) -> None:
    spec = small.spec([wheel(name, NEW, "debian13") for name in ("fsspec", "filelock")])
    (layer,) = wheel_layers.wheel_layers(spec.lock)
    engine_digests = small.layers(small.build(spec, compression="gzip"))
    stored_layer = layer_store.find(layer_recipe(layer, "gzip"))
    assert stored_layer is not None
    assert engine_digests[0] == stored_layer.runtime.digest


def test_another_version_of_a_wheel_is_one_layer_and_no_step(
    small: SmallBuild, capfd: pytest.CaptureFixture[str]
) -> None:
    before = wheels()
    for name in LARGE:
        small.build(small.spec(before))
        after = [wheel(name, OLD, "debian13") if w.name == name else w for w in before]
        capfd.readouterr()
        small.build(small.spec(after))
        stderr = capfd.readouterr().err
        stages = ("wheel", "uv", "with-python", "with-efa-installer")
        steps = {step for step in ran() if step.startswith(stages)}
        if not steps:
            break
        make_room(small.engine)  # another worker has filled the cache
    assert not steps
    # Only what is new goes to the engine, and once.
    (new_size,) = (w.size for w in after if w.name == name)
    assert sum(int(size) for size in re.findall(r"wheel layers, (\d+) MB new", stderr)) <= 1.1 * new_size / 1e6


def test_the_stages_alone_make_the_same_files(small: SmallBuild) -> None:
    """A Dockerfile built by hand, without the context, installs the wheels itself."""
    spec = small.spec([wheel(name, NEW, "debian13") for name in ("jinja2", "markupsafe", "nvidia-nvtx")])
    ours = small.files(small.build(spec))
    theirs = small.files(small.build_by_stages(spec))
    differ = {path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)}
    # Who installed it is named, and RECORD has that name's digest.
    assert {path.rpartition("/")[2] for path in differ} <= {"INSTALLER", "RECORD"}
    assert len(ours) > 30


def test_nothing_changed_runs_nothing(small: SmallBuild) -> None:
    small.build(small.spec(wheels()))
    small.build(small.spec(wheels()))
    assert ran() == set()
