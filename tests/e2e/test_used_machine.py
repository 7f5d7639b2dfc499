"""Builds on a machine that has seen others have the layers of a fresh machine.

One engine and one state folder live through all sequences: what one sequence leaves is there for the next.
"""

import io
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from rdma_images.core.compression import Compression
from rdma_images.core.image import LAYERS_LABEL
from rdma_images.engine import Engine, docker_command, prune
from rdma_images.layers import layer_store
from rdma_images.layers.engine_layers import load_image, read_engine_layers
from rdma_images.layers.layer_image import LayerSet
from rdma_images.layers.layer_pool import LayerPool
from rdma_images.layers.recipe import Recipe, compressor
from rdma_images.render import bake
from tests.e2e import private_engine
from tests.e2e.layer_parts import SmallBuild
from tests.e2e.publish_parts import second_engine
from tests.support import layer_wheels
from tests.support.layer_wheels import MIRRORS

pytestmark = [pytest.mark.e2e, pytest.mark.part("another-engine"), private_engine.needs]

TARGETS = {"training": ("one", "two"), "inference": ("one", "two", "three"), "measuring": ("one",), "tools": ("three",)}
CHECKOUTS = ("first", "second")  # whose wheels "two" have one name and different contents
BASES = ("debian", "ubuntu")
PARTS = ("runtime", "devel")
COMPRESSIONS: tuple[Compression, ...] = ("zstd", "gzip")
DEVEL = "include/header.h"  # what a devel image has beside the runtime; "two" and "three" have nothing of it

# Everything but the wheels lies above them, as in the product's Dockerfile.
DOCKERFILE = """
FROM scratch AS system
ADD base.tar /
FROM wheels
LABEL {label}='{coder}'
COPY --from=none / /
COPY --link --from=system / /
"""

KILLED = """
import sys
from rdma_images.engine import private
from tests.e2e import test_used_machine as used
used.World(private.up(), used.Path(sys.argv[1])).build(used.Variant(*sys.argv[2:]))
"""


class Variant(NamedTuple):
    """What is built: a target of a checkout, on a base."""

    checkout: str
    target: str
    base: str = "debian"
    part: str = "runtime"
    compression: Compression = "zstd"

    @property
    def ref(self) -> str:
        """The image's name, which both checkouts give to their own."""
        return f"rdma-images-test/used:{self.target}-{self.base}-{self.part}-{self.compression}"


class World:
    """Two checkouts, each with three small wheels and their index; two bases, and an engine."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.first_digests: dict[tuple[str, ...], list[str]] = {}

    @classmethod
    def create(cls, engine: Engine, folder: Path) -> "World":
        """Make the wheels, indexes and bases below `folder`."""
        for checkout in CHECKOUTS:
            wheels = folder / checkout / "wheels"
            for name in TARGETS["inference"]:
                text = f"{name} of {checkout}" if name == "two" else name
                content = {f"{name}/x.py": text.encode() * 5000}
                if name == "one":
                    content[f"{name}/{DEVEL}"] = b"#define ONE\n" * 5000
                layer_wheels.make(wheels, name, content)
            layer_wheels.index(folder / checkout / "index", *sorted(wheels.glob("*.whl")))
        for base in BASES:
            (folder / base).mkdir()
            with tarfile.open(folder / base / "base.tar", "w") as tree:  # as bases are bootstrapped: with fixed times
                folder_entry = tarfile.TarInfo("etc")
                folder_entry.type, folder_entry.mode = tarfile.DIRTYPE, 0o755
                tree.addfile(folder_entry)
                release = f"ID={base}\n".encode()
                file_entry = tarfile.TarInfo("etc/os-release")
                file_entry.size = len(release)
                tree.addfile(file_entry, io.BytesIO(release))
        (folder / "none").mkdir()
        return cls(engine, folder)

    def recipe(self, checkout: str, name: str, compression: Compression) -> Recipe:
        """Return the recipe of one wheel's layer."""
        (wheel,) = (self.folder / checkout / "wheels").glob(f"{name}-*.whl")
        return Recipe(f"wheel-{name}", (layer_wheels.locked(wheel),), compression)

    def build(self, variant: Variant) -> None:
        """Build a variant, and require the layers that it had at first."""
        print("build", variant)
        checkout, target, base, part, compression = variant
        recipes = tuple(self.recipe(checkout, name, compression) for name in TARGETS[target])
        layer_set = LayerSet(recipes, part, "linux/amd64")
        with LayerPool(recipes, (self.folder / checkout / "index").as_uri() + "/", MIRRORS) as pool:
            loaded = load_image(layer_set, pool, self.engine, read_engine_layers(self.engine, compression))
        contexts = {"wheels": f"docker-image://{loaded.ref}", "none": self.folder / "none"}
        command = ["docker", "buildx", "build", "--quiet", "--provenance=false", "--file=-"]
        command += [f"--output={bake.bake_output(variant.ref, 'containerd', None, compression)}"]
        command += [f"--build-context={name}={address}" for name, address in contexts.items()]
        text = DOCKERFILE.format(label=LAYERS_LABEL, coder=compressor(compression)).encode()
        environ = {**self.engine.environ(), "SOURCE_DATE_EPOCH": "0"}
        subprocess.run([*command, str(self.folder / base)], env=environ, input=text, check=True, capture_output=True)
        docker_command.remove_images(self.engine, loaded.ref)
        layers = SmallBuild(self.engine).layers(variant.ref)
        assert layers[: len(recipes)] == [blob.digest for blob in loaded.blobs]
        assert self.first_digests.setdefault(variant, layers) == layers

    def kill_build(self, variant: Variant, seconds: float) -> None:
        """End a build of another process after that time."""
        print("kill after", seconds, variant)
        command = [sys.executable, "-c", KILLED, str(self.folder), *variant]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def images(self) -> list[str]:
        """Return the names of the images that builds left."""
        command = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "rdma-images-test/used"]
        return subprocess.run(command, env=self.engine.environ(), capture_output=True, text=True).stdout.split()

    def remove(self, images: list[str]) -> None:
        """Remove images from the engine."""
        print("remove", images)
        if images:
            subprocess.run(
                ["docker", "image", "rm", *images], env=self.engine.environ(), check=True, capture_output=True
            )

    def prune(self, cache: bool) -> None:
        """Remove what `engine.prune` removes, with `cache` also what the builder keeps."""
        print("prune", cache)
        prune.remove(self.engine, prune.unused_images(self.engine, ()), cache)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with second_engine() as engine:
        yield World.create(engine, tmp_path_factory.mktemp("used"))


VARIANTS = st.builds(
    Variant,
    st.sampled_from(CHECKOUTS),
    st.sampled_from(sorted(TARGETS)),
    st.sampled_from(BASES),
    st.sampled_from(PARTS),
    st.sampled_from(COMPRESSIONS),
)


def state_machine(world: World) -> type[RuleBasedStateMachine]:
    """Return the sequences on this world; each build checks its own layers.

    What a sequence does depends on what those before it left: none is tried again to find a shorter one.
    """

    class UsedMachine(RuleBasedStateMachine):
        @rule(variant=VARIANTS)
        def build(self, variant: Variant) -> None:
            world.build(variant)

        @rule(variant=VARIANTS, seconds=st.floats(0.2, 3.0))
        def kill_a_build(self, variant: Variant, seconds: float) -> None:
            world.kill_build(variant, seconds)

        @rule(number=st.integers(0, 50))
        def remove_an_image(self, number: int) -> None:
            images = world.images()
            world.remove(images[number % len(images) :][:1] if images else [])

        @rule()
        def remove_all_images(self) -> None:
            world.remove(world.images())

        @rule(cache=st.booleans())
        def prune(self, cache: bool) -> None:
            world.prune(cache)

        @rule(
            checkout=st.sampled_from(CHECKOUTS),
            name=st.sampled_from(TARGETS["inference"]),
            compression=st.sampled_from(COMPRESSIONS),
        )
        def lose_a_layer_of_the_store(self, checkout: str, name: str, compression: Compression) -> None:
            print("lose", checkout, name, compression)
            shutil.rmtree(layer_store.folder(world.recipe(checkout, name, compression).key), ignore_errors=True)

        @rule()
        def empty_the_store_of_layers(self) -> None:
            print("empty the store")
            shutil.rmtree(layer_store.root(), ignore_errors=True)

    return UsedMachine


def test_a_machine_that_is_used_builds_as_a_fresh_one(world: World) -> None:
    """Each event once; the order has empty layers before an empty cache, which once failed."""
    world.build(Variant("first", "inference"))
    devel = Variant("first", "measuring", part="devel")
    world.build(devel)
    world.remove([devel.ref])
    world.prune(cache=True)
    world.build(Variant("first", "inference", part="devel"))
    world.build(Variant("second", "inference", "ubuntu", compression="gzip"))
    world.kill_build(Variant("second", "training"), 1.0)
    shutil.rmtree(layer_store.root())
    world.build(Variant("second", "inference"))
    world.build(Variant("first", "inference"))
    assert world.first_digests[Variant("first", "inference")] != world.first_digests[Variant("second", "inference")]


@pytest.mark.exhaustive
def test_whatever_came_before(world: World) -> None:
    run_state_machine_as_test(
        state_machine(world),
        settings=settings(
            max_examples=15,
            stateful_step_count=20,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
