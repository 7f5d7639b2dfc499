"""A wheel is a layer, the same everywhere; and a change runs what depends on it, and nothing else."""

import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest
from layer_parts import Small, ran, standing, wheel

from rdma_images import engine, paths
from rdma_images.engine import private

obstacle = private.obstacle()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(obstacle is not None, reason=str(obstacle))]

ROOM = 10_000_000_000  # bytes of cache that these builds may fill
NEW, OLD = "2.15.0", "2.14.1"
LARGE = ("nvidia-nvjitlink", "nvidia-cuda-nvrtc")
FEW = (*LARGE, "jinja2", "markupsafe")


def wheels(torch=NEW, base="debian13"):
    return [wheel(name, torch, base) for name in FEW]


@pytest.fixture(scope="module")
def small():
    running = engine.ensure()
    # In a full cache BuildKit lets go of a step as soon as it ran: one that was used once is the first to go.
    room = max(engine.disk.cache_limit(paths.state_folder()) - ROOM, 0)
    command = ["docker", "buildx", "prune", "--force", "--all", "--keep-storage", str(room)]
    subprocess.run(command, env=running.environ(), check=True, stdout=subprocess.DEVNULL)
    return Small(running)


@pytest.fixture
def other_engine(monkeypatch):
    """An engine that has seen nothing, with a state folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="lay-"))
    with monkeypatch.context() as patch:
        patch.setenv("RDMA_IMAGES_STATE", str(folder))
        yield Small(private.up())
        engine.down(purge=True)
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def nothing_stays(small):
    yield
    for name in ("small", "other"):
        shutil.rmtree(paths.image_folder(f"test-{name}"), ignore_errors=True)
        small.forget(name)


def test_a_layer_is_the_same_in_an_engine_that_saw_nothing(small, other_engine):
    number = len(LARGE) + 1  # and the small ones together
    ours = small.layers(small.build(small.order(wheels())))
    theirs = other_engine.layers(other_engine.build(other_engine.order(wheels())))
    assert ours[:number] == theirs[:number]


def test_a_layer_is_the_same_on_another_base_with_another_python(small):
    every_python = [wheel(name, OLD, "debian13") for name in (*LARGE, "jinja2")]
    number = len(every_python)
    trixie = small.layers(small.build(small.order(every_python, f"pytorch={OLD}")))
    here = standing("ubuntu22.04", "debian12")
    other = small.order(every_python, f"pytorch={OLD}", "base=ubuntu22.04", name="other", here=here)
    bookworm = small.layers(small.build(other, here))
    assert "python 3.11" in other.dockerfile.read_text()
    assert trixie[:number] == bookworm[:number]
    assert trixie[number:] != bookworm[number:]


def test_another_version_of_a_wheel_runs_its_own_stage_and_no_other(small, capfd):
    before = wheels()
    small.build(small.order(before))
    after = [wheel("nvidia-cuda-nvrtc", OLD, "debian13") if w.name == "nvidia-cuda-nvrtc" else w for w in before]
    capfd.readouterr()
    small.build(small.order(after))
    steps = ran(capfd.readouterr().err)
    assert {step for step in steps if step.startswith(("wheel", "uv"))} <= {"wheel-nvidia-cuda-nvrtc 1/1"}
    assert not {step for step in steps if step.startswith(("with-python", "with-efa-installer"))}


def test_another_installer_runs_no_wheel(small, capfd):
    small.build(small.order(wheels()))
    capfd.readouterr()
    other = small.order(wheels(), "efa-installer=1.47.0")
    # Also where this engine has built that installer before.
    text = other.dockerfile.read_text()
    other.dockerfile.write_text(text.replace("./efa_installer.sh", f": {uuid.uuid4()}\n./efa_installer.sh"))
    small.build(other)
    steps = ran(capfd.readouterr().err)
    assert "with-efa-installer 1/1" in steps
    assert not {step for step in steps if step.startswith(("wheel", "uv", "with-python"))}


def test_nothing_changed_runs_nothing(small, capfd):
    small.build(small.order(wheels()))
    capfd.readouterr()
    small.build(small.order(wheels()))
    assert ran(capfd.readouterr().err) == set()
