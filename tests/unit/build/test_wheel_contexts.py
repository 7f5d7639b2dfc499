"""The rest of an image is built while its wheels' layers are brought."""

from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import wheel_contexts
from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.run_bake import BuildOptions
from rdma_images.engine import Engine
from rdma_images.inputs import lock, project
from rdma_images.inputs.wheels import Lock
from rdma_images.layers import layer_store
from rdma_images.layers.engine_layers import EngineLayers
from rdma_images.layers.layer_image import LayerSet, LoadedImage
from rdma_images.layers.recipe import layer_recipe
from rdma_images.layers.registry_layers import RegistryLayers
from rdma_images.publish.destination import layers_repository
from rdma_images.render import wheel_layers
from tests.support import layer_wheels
from tests.support.images import planned_image
from tests.support.layer_wheels import BLOB, fill
from tests.support.publish_doubles import Handler, served

ENGINE = Engine("private", "private", "unix:///x", "28.2", "0.24", "containerd", "host")
REGISTRY = layers_repository("127.0.0.1:1/layers")
REF = "127.0.0.1:1/layers@sha256:3"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildSpec:
    """Return an image with one wheel, whose layer this machine has made."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    image = planned_image()
    wheels = Lock(request=lock.lock_request(image), wheels=(layer_wheels.locked(layer_wheels.make(tmp_path)),))
    for layer in wheel_layers.wheel_layers(wheels):
        layer_store.get_or_build(layer_recipe(layer, "zstd"), fill)
    return BuildSpec(image, wheels, facts.load(), "sha256:1")


def built_meanwhile(spec: BuildSpec, options: BuildOptions, engine: Engine = ENGINE) -> list[str]:
    """Return the images whose rest is built while their layers are brought."""
    built: list[str] = []

    loaded = wheel_contexts.bring_wheel_layers([spec], project.load(), engine, options, (), built.extend)
    assert list(loaded.contexts[spec.image.id].values()) == [f"docker-image://{REF}"]
    return built


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[LayerSet]:
    """Return what is loaded into the engine, which had nothing before."""
    layer_sets: list[LayerSet] = []

    def load(layer_set: LayerSet, *_: object, **__: object) -> LoadedImage:
        layer_sets.append(layer_set)
        return LoadedImage(REF, (BLOB,))

    monkeypatch.setattr(wheel_contexts, "read_engine_layers", lambda *_: EngineLayers())
    monkeypatch.setattr(wheel_contexts, "load_image", load)
    return layer_sets


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(("present", "is_missing"), [(set(), True), ({"sha256:another"}, True), ({BLOB.digest}, False)])
def test_layers_that_were_made_before_go_to_the_engine_meanwhile(
    spec: BuildSpec, monkeypatch: pytest.MonkeyPatch, present: set[str], is_missing: bool
) -> None:
    monkeypatch.setattr(wheel_contexts, "read_engine_layers", lambda *_: EngineLayers(loaded=present))
    assert built_meanwhile(spec, BuildOptions()) == ([spec.image.id] if is_missing else [])


@pytest.mark.parametrize("compiling", [True, False])
def test_the_layers_of_a_devel_image_are_brought_to_compile_alone(
    spec: BuildSpec, loaded: list[LayerSet], compiling: bool
) -> None:
    ids = {spec.image.id} if compiling else set()
    wheel_contexts.bring_wheel_layers([spec], project.load(), ENGINE, BuildOptions(), ids, lambda _: None)
    assert [layer_set.variant for layer_set in loaded] == ["runtime", *(["devel"] if compiling else [])]


@pytest.mark.parametrize("builder", [None, "far"])
def test_layers_of_a_registry_are_read_there(
    spec: BuildSpec, monkeypatch: pytest.MonkeyPatch, loaded: list[LayerSet], builder: str | None
) -> None:
    def query_registry(layer_set: LayerSet, _: object) -> RegistryLayers:
        return RegistryLayers(layer_set, "sha256:3", {recipe.key: BLOB for recipe in layer_set.recipes})

    monkeypatch.setattr(wheel_contexts, "query_registry", query_registry)
    assert (built_meanwhile(spec, BuildOptions(layers=REGISTRY, builder=builder)), loaded) == ([], [])


def test_without_the_right_to_send_layers_they_are_brought_without_the_registry(
    spec: BuildSpec, loaded: list[LayerSet]
) -> None:
    class Closed(Handler):
        def do_GET(self) -> None:
            self.answer(404)

        def do_HEAD(self) -> None:
            self.answer(403)

    lines: list[str] = []
    with served(Closed) as host:
        options = BuildOptions(layers=layers_repository(f"{host}/layers"))
        contexts = wheel_contexts.bring_wheel_layers([spec], project.load(), ENGINE, options, (), print, lines.append)
    assert contexts.blobs[spec.image.id] == {BLOB.digest: BLOB.size}
    assert loaded
    (reason,) = [line for line in lines if "denies access" in line]
    assert reason.endswith("; the wheels' layers are brought without this registry")
