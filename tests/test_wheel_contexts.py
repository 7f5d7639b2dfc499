"""The rest of an image is built while its wheels' layers are brought, and not before them where they are there."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import wheel_contexts
from rdma_images.build.order import Order
from rdma_images.build.run_bake import Options
from rdma_images.engine import Engine, docker_command
from rdma_images.inputs import lock, project
from rdma_images.inputs.wheels import Lock
from rdma_images.layers import load, resident, store
from rdma_images.layers.load import Brought, Wanted
from rdma_images.layers.recipe import recipe
from rdma_images.layers.resident import Resident
from rdma_images.publish.destination import layers_repository
from rdma_images.render import wheel_layers
from tests import layer_wheels
from tests.images import planned
from tests.test_layers_store import BLOB, fill

ENGINE = Engine("private", "private", "unix:///x", "28.2", "0.24", "containerd", "host")
REGISTRY = layers_repository("127.0.0.1:1/layers")
REF = "127.0.0.1:1/layers@sha256:3"


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    """An image with one wheel, whose layer this machine has made."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    image = planned()
    wheels = Lock(asked=lock.asked(image), wheels=(layer_wheels.locked(layer_wheels.make(tmp_path)),))
    for layer in wheel_layers.layers(wheels):
        store.made(recipe(layer, "zstd"), fill)
    return Order(image, wheels, facts.load(), "sha256:1")


def built_meanwhile(order: Order, options: Options) -> list[str]:
    """The images whose rest is built while their layers are brought."""
    built: list[str] = []

    def systems(ids: Sequence[str]) -> int:
        built.extend(ids)
        return len(ids)

    found = wheel_contexts.provide([order], project.load(), ENGINE, options, systems)
    assert found.steps == len(built)
    assert list(found.contexts[order.image.id].values()) == [f"docker-image://{REF}"]
    return built


@pytest.mark.parametrize(("there", "is_long"), [(set(), True), ({"sha256:another"}, True), ({BLOB.diff_id}, False)])
def test_layers_that_were_made_before_go_to_the_engine_meanwhile(
    order: Order, monkeypatch: pytest.MonkeyPatch, there: set[str], is_long: bool
) -> None:
    monkeypatch.setattr(load, "diff_ids", lambda *_: there)
    monkeypatch.setattr(load, "load", lambda *_, **__: Brought(REF, (BLOB,)))
    assert built_meanwhile(order, Options()) == ([order.image.id] if is_long else [])


@pytest.mark.parametrize(
    ("there", "builder", "pulled"), [(set(), None, True), ({BLOB.diff_id}, None, False), (set(), "far", False)]
)
def test_layers_of_a_registry_are_pulled_meanwhile(
    order: Order, monkeypatch: pytest.MonkeyPatch, there: set[str], builder: str | None, pulled: bool
) -> None:
    asked: list[tuple[str, ...]] = []

    def found(wanted: Wanted, *_: object) -> Resident:
        return Resident(wanted, "sha256:3", {one.key: BLOB for one in wanted.recipes})

    def docker(_: Engine, *arguments: str) -> str:
        asked.append(arguments)
        return ""

    monkeypatch.setattr(load, "diff_ids", lambda *_: there)
    monkeypatch.setattr(resident, "look", found)
    monkeypatch.setattr(docker_command, "output", docker)
    built = built_meanwhile(order, Options(layers=REGISTRY, builder=builder))
    assert (built, asked) == (([order.image.id], [("pull", "--quiet", REF)]) if pulled else ([], []))
