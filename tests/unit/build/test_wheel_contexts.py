"""The rest of an image is built while its wheels' layers are brought."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from rdma_images import facts
from rdma_images.build import wheel_contexts
from rdma_images.build.build_spec import BuildSpec
from rdma_images.build.run_bake import Options
from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import Engine
from rdma_images.inputs import lock, project
from rdma_images.inputs.wheels import Lock
from rdma_images.layers import layer_store, load_layers, remote_layers
from rdma_images.layers.engine_layers import EngineLayers
from rdma_images.layers.load_layers import LayerSet, LoadedImage
from rdma_images.layers.recipe import layer_recipe
from rdma_images.layers.remote_layers import RemoteLayers
from rdma_images.publish.destination import layers_repository
from rdma_images.registry.client import CHUNK
from rdma_images.render import wheel_layers
from tests.support import layer_wheels
from tests.support.images import planned
from tests.support.publish_doubles import Handler, served
from tests.unit.layers.test_layer_store import BLOB, fill

ENGINE = Engine("private", "private", "unix:///x", "28.2", "0.24", "containerd", "host")
REGISTRY = layers_repository("127.0.0.1:1/layers")
REF = "127.0.0.1:1/layers@sha256:3"


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildSpec:
    """Return an image with one wheel, whose layer this machine has made."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    image = planned()
    wheels = Lock(request=lock.lock_request(image), wheels=(layer_wheels.locked(layer_wheels.make(tmp_path)),))
    for layer in wheel_layers.wheel_layers(wheels):
        layer_store.get_or_build(layer_recipe(layer, "zstd"), fill)
    return BuildSpec(image, wheels, facts.load(), "sha256:1")


def built_meanwhile(order: BuildSpec, options: Options, engine: Engine = ENGINE) -> list[str]:
    """Return the images whose rest is built while their layers are brought."""
    built: list[str] = []

    loaded = wheel_contexts.provide_contexts([order], project.load(), engine, options, built.extend)
    assert list(loaded.contexts[order.image.id].values()) == [f"docker-image://{REF}"]
    return built


@pytest.mark.parametrize(("present", "is_long"), [(set(), True), ({"sha256:another"}, True), ({BLOB.digest}, False)])
def test_layers_that_were_made_before_go_to_the_engine_meanwhile(
    order: BuildSpec, monkeypatch: pytest.MonkeyPatch, present: set[str], is_long: bool
) -> None:
    monkeypatch.setattr(wheel_contexts, "engine_layers_of", lambda *_: EngineLayers(loaded=present))
    monkeypatch.setattr(load_layers, "load_image", lambda *_, **__: LoadedImage(REF, (BLOB,)))
    assert built_meanwhile(order, Options()) == ([order.image.id] if is_long else [])


@pytest.mark.parametrize(
    ("kind", "present", "builder", "expected"),
    [
        ("existing", set(), None, ["files"]),
        ("private", set(), None, ["files"]),
        ("private", {BLOB.digest}, None, []),
        ("existing", set(), "far", []),
    ],
)
def test_layers_of_a_registry_come_meanwhile(
    order: BuildSpec,
    monkeypatch: pytest.MonkeyPatch,
    kind: Literal["private", "existing"],
    present: set[str],
    builder: str | None,
    expected: list[str],
) -> None:
    requests: list[str] = []

    def query_registry(layer_set: LayerSet, *_: object) -> RemoteLayers:
        return RemoteLayers(layer_set, "sha256:3", {recipe.key: BLOB for recipe in layer_set.recipes})

    def files(*_: object) -> LoadedImage:
        requests.append("files")
        return LoadedImage(REF, (BLOB,))

    monkeypatch.setattr(wheel_contexts, "engine_layers_of", lambda *_: EngineLayers(loaded=present))
    monkeypatch.setattr(load_layers, "load_image", files)
    monkeypatch.setattr(remote_layers, "query_registry", query_registry)
    built = built_meanwhile(order, Options(layers=REGISTRY, builder=builder), replace(ENGINE, kind=kind))
    assert (built, requests) == ([order.image.id] if expected else [], expected)


@pytest.fixture
def resident_order(order: BuildSpec, monkeypatch: pytest.MonkeyPatch) -> BuildSpec:
    """Return the same where a registry has the layer under another digest."""

    def query_registry(layer_set: LayerSet, *_: object) -> RemoteLayers:
        return RemoteLayers(
            layer_set, "sha256:3", {recipe.key: replace(BLOB, digest="sha256:4") for recipe in layer_set.recipes}
        )

    def load_when_built(layer_set: LayerSet, source: load_layers.LayerSource, *_: object, **__: object) -> LoadedImage:
        return LoadedImage(
            REF, tuple(source.layer_future(recipe).result().blob("runtime") for recipe in layer_set.recipes)
        )

    monkeypatch.setattr(wheel_contexts, "engine_layers_of", lambda *_: EngineLayers())
    monkeypatch.setattr(load_layers, "load_image", load_when_built)
    monkeypatch.setattr(remote_layers, "query_registry", query_registry)
    return order


def test_what_fails_meanwhile_ends_the_downloads(resident_order: BuildSpec) -> None:
    """The registry sends a layer without an end."""
    requested = threading.Event()
    ended = threading.Event()

    class Endless(Handler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            requested.set()
            while not ended.wait(0.01):
                self.wfile.write(bytes(CHUNK))

    late = threading.Timer(15, ended.set)
    late.daemon = True

    def systems(_: Sequence[str]) -> None:
        assert requested.wait(30)
        late.start()
        raise RdmaImagesError("no space left")

    with served(Endless) as host:
        options = Options(layers=layers_repository(f"{host}/layers"))
        with pytest.raises(RdmaImagesError, match="no space left"):
            wheel_contexts.provide_contexts([resident_order], project.load(), ENGINE, options, systems)
    assert not ended.is_set()


def test_layers_that_may_not_be_downloaded_are_made_here(resident_order: BuildSpec) -> None:
    class Closed(Handler):
        def do_GET(self) -> None:
            self.answer(403)

    lines: list[str] = []
    with served(Closed) as host:
        options = Options(layers=layers_repository(f"{host}/layers"))
        loaded = wheel_contexts.provide_contexts([resident_order], project.load(), ENGINE, options, print, lines.append)
    assert loaded.blobs[resident_order.image.id] == {BLOB.digest: BLOB.size}
    (reason,) = [line for line in lines if "denies access" in line]
    assert reason.endswith("sha256:4; the wheels' layers are brought without this registry")
