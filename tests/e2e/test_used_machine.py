"""Layers on a machine that has seen other builds: whatever came before, a build has the layers of a fresh machine.

One engine and one state folder live through all sequences: what one sequence leaves is there for the next.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rdma_images.engine import Engine, private
from rdma_images.engine.prune import LAYERS
from rdma_images.layers import load, store
from rdma_images.layers.engine_layers import engine_layers
from rdma_images.layers.load import LayerSet
from rdma_images.layers.make import Maker
from rdma_images.layers.recipe import Recipe, coder
from rdma_images.render import bake
from rdma_images.render.bake import Compression
from tests import layer_wheels
from tests.e2e.layer_parts import Small
from tests.e2e.publish_parts import second_engine
from tests.test_layers_store import MIRRORS

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(private.obstacle() is not None, reason=str(private.obstacle()))]

NAMES = ("one", "two", "three")
DEVEL = "include/header.h"  # what a devel image has beside the runtime; "two" and "three" have nothing of it
COMPRESSIONS: tuple[Compression, ...] = ("zstd", "gzip")

KILLED = """
import sys
from rdma_images.engine import private
from tests.e2e import test_used_machine
machine = test_used_machine.World(private.up(), *map(test_used_machine.Path, sys.argv[1:3]))
machine.build(("one", "two", "three"), sys.argv[3], "zstd")
"""


class World:
    """Three small wheels, an index that has them, and an engine."""

    def __init__(self, engine: Engine, wheels: Path, index: Path) -> None:
        self.engine, self.index = engine, index
        self.files = {name: next(wheels.glob(f"{name}-*.whl")) for name in NAMES}
        self.wheels = wheels

    @classmethod
    def create(cls, engine: Engine, folder: Path) -> "World":
        """Make the wheels and the index below `folder`."""
        wheels = folder / "wheels"
        for name in NAMES:
            content = {f"{name}/x.py": name.encode() * 5000}
            if name == "one":
                content[f"{name}/{DEVEL}"] = b"#define ONE\n" * 5000
            layer_wheels.make(wheels, name, content)
        layer_wheels.index(folder / "index", *sorted(wheels.glob("*.whl")))
        return cls(engine, wheels, folder / "index")

    def recipe(self, name: str, compression: Compression) -> Recipe:
        """Return the recipe of one wheel's layer."""
        return Recipe(f"wheel-{name}", (layer_wheels.locked(self.files[name]),), compression)

    def build(self, names: tuple[str, ...], part: str, compression: Compression) -> tuple[list[str], list[str]]:
        """Load the layers, build an image on them, and return its layers with those that it should have."""
        layer_set = LayerSet(tuple(self.recipe(name, compression) for name in names), part, "linux/amd64")
        with Maker(layer_set.recipes, self.index.as_uri() + "/", MIRRORS) as maker:
            loaded = load.load(layer_set, maker, self.engine, engine_layers(self.engine, compression))
        ref = f"rdma-images-test/used:{'-'.join(names)}-{part}-{compression}"
        context = self.index.parent / "context"
        (context / "none").mkdir(parents=True, exist_ok=True)
        # An empty layer of BuildKit's own, as images of the product have them.
        text = f"FROM wheels\nLABEL {LAYERS}='{coder(compression)}'\nCOPY --from=none / /\n"
        (context / "Dockerfile").write_text(text)
        command = ["docker", "buildx", "build", "--quiet", "--provenance=false", str(context)]
        command += [f"--output={bake.bake_output(ref, 'containerd', None, compression)}"]
        command += [f"--build-context=wheels=docker-image://{loaded.ref}", f"--build-context=none={context / 'none'}"]
        subprocess.run(command, env=self.engine.environ(), check=True, capture_output=True)
        load.remove_names(self.engine, loaded.ref)
        return Small(self.engine).layers(ref)[: len(names)], [blob.digest for blob in loaded.blobs]

    def docker(self, *arguments: str) -> None:
        """Run docker on the engine; what it cannot remove is not there."""
        subprocess.run(["docker", *arguments], env=self.engine.environ(), capture_output=True)

    def images(self) -> list[str]:
        """Return the names of the images that builds left."""
        command = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "rdma-images-test/used"]
        return subprocess.run(command, env=self.engine.environ(), capture_output=True, text=True).stdout.split()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with second_engine() as engine:
        yield World.create(engine, tmp_path_factory.mktemp("used"))


def machine_of(world: World) -> type[RuleBasedStateMachine]:
    """Return the sequences on this world; the first digests of a build are those of the fresh engine."""
    fresh: dict[tuple[str, str, str], str] = {}

    class UsedMachine(RuleBasedStateMachine):
        @initialize()
        def start(self) -> None:
            self.last: tuple[list[str], list[str]] = ([], [])

        @rule(
            names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(sorted).map(tuple),
            part=st.sampled_from(("runtime", "devel")),
            compression=st.sampled_from(COMPRESSIONS),
        )
        def build(self, names: tuple[str, ...], part: str, compression: Compression) -> None:
            self.last = world.build(names, part, compression)
            for name, digest in zip(names, self.last[0], strict=True):
                assert fresh.setdefault((name, part, compression), digest) == digest

        @rule(number=st.integers(0, 50))
        def remove_an_image(self, number: int) -> None:
            if images := world.images():
                world.docker("image", "rm", images[number % len(images)])

        @rule()
        def empty_the_build_cache(self) -> None:
            world.docker("buildx", "prune", "--all", "--force")

        @rule()
        def remove_all_images(self) -> None:
            if images := world.images():
                world.docker("image", "rm", *images)

        @rule(name=st.sampled_from(NAMES), compression=st.sampled_from(COMPRESSIONS))
        def lose_a_layer_of_the_store(self, name: str, compression: Compression) -> None:
            shutil.rmtree(store.folder(world.recipe(name, compression).key), ignore_errors=True)

        @rule(seconds=st.floats(0.2, 3.0), part=st.sampled_from(("runtime", "devel")))
        def kill_a_build(self, seconds: float, part: str) -> None:
            command = [sys.executable, "-c", KILLED, str(world.wheels), str(world.index), part]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            process.wait()

        @invariant()
        def the_image_has_the_layers(self) -> None:
            built, expected = getattr(self, "last", ([], []))
            assert built == expected

    return UsedMachine


def test_a_devel_image_after_the_default_ones(world: World) -> None:
    """The order of commands in which a devel image failed: images with empty layers, then their cache emptied."""
    for names, part in ((NAMES, "runtime"), (("one",), "devel")):
        built, expected = world.build(names, part, "zstd")
        assert built == expected
    world.docker("image", "rm", "rdma-images-test/used:one-devel-zstd")
    world.docker("buildx", "prune", "--all", "--force")
    built, expected = world.build(NAMES, "devel", "zstd")
    assert built == expected


@pytest.mark.parametrize(("sequences", "steps"), [(2, 8), pytest.param(40, 20, marks=pytest.mark.exhaustive)])
def test_whatever_came_before(world: World, sequences: int, steps: int) -> None:
    run_state_machine_as_test(
        machine_of(world),
        settings=settings(
            max_examples=sequences,
            stateful_step_count=steps,
            deadline=None,
            derandomize=sequences < 10,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
