"""A published image from a lock of Debian's archive, rebuilt on an empty engine."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.engine import private
from tests.e2e.publish_parts import UNFINISHED, Registry, registry_program
from tests.support import snapshot, wheel

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(private.obstacle() is not None, reason=str(private.obstacle()))]

TARGET = "reproduced"
MATRIX = """\
targets:
  reproduced:
    summary: An image to build twice
    fabric: efa
    user: nonroot
    default: {base: debian13, nccl-tests: 2.20.0, cuda: 13.0, nccl: 2.30.7, efa-installer: 1.50.0}
"""
SMALL = '"base", "python", "wheels", "environment"'
STAGES = '"base", "python", "efa-installer", "ssh", "wheels", "environment"'
FROM_ARCHIVE = ("debian", "engine/packages")  # of the state folder: what another engine starts with in seconds


@dataclass
class Folder:
    """A user's folder with a target, and the installed command in it."""

    path: Path
    environ: dict[str, str]

    def run(self, *arguments: str, state: Path | None = None, codes: tuple[int, ...] = (0,)) -> str:
        """Return what a command prints that ends with one of the codes."""
        environ = self.environ | ({"RDMA_IMAGES_STATE": str(state)} if state else {})
        done = subprocess.run(
            arguments, cwd=self.path, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode in codes, f"{arguments}\n{done.stdout[-4000:]}{done.stderr[-6000:]}"
        return done.stdout

    def read(self, name: str) -> dict[str, object]:
        """Return what a step wrote of the one image."""
        (file,) = self.path.glob(f"build/images/{TARGET}-*/{name}.json")
        content: dict[str, object] = json.loads(file.read_text())
        return content


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.installed(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    running = Registry(registry_program(), tmp_path_factory.mktemp("registry"), password=False).start()
    yield running
    running.kill()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[snapshot.SnapshotServer]:
    with snapshot.served(tmp_path_factory.mktemp("snapshot")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, program: Path, registry: Registry, archive: snapshot.SnapshotServer) -> Iterator[Folder]:
    identity = {
        f"GIT_{role}_{what}": "test@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environ = os.environ | identity
    environ |= {"PATH": f"{program.parent}:{os.environ['PATH']}", "RDMA_IMAGES_MIRROR_DEBIAN_SNAPSHOT": archive.address}
    project_folder = Folder(tmp_path / "images", environ)
    (project_folder.path / "dockerfiles" / "targets").mkdir(parents=True)
    (project_folder.path / "matrix.yaml").write_text(MATRIX)
    (project_folder.path / ".gitignore").write_text("build/\n")
    entry = {"kind": "oci", "host": registry.host, "credentials": "none"}
    (project_folder.path / "registries.yaml").write_text(json.dumps({"registries": {"local": entry}}))
    yield project_folder
    listing = ["docker", "image", "ls", "--quiet", f"rdma-images/{TARGET}"]
    docker = engines.ensure().environ()
    images = subprocess.run(listing, env=docker, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "image", "rm", "--force", *images], env=docker, capture_output=True)


@pytest.fixture
def second_state() -> Iterator[Path]:
    """Provide a state folder with tools of Debian's archive, and without bases."""
    folder = Path(tempfile.mkdtemp(prefix="rdma-images-"))  # pytest's own folders are too deep for a socket's path
    for name in FROM_ARCHIVE:
        if (paths.state_folder() / name).exists():
            shutil.copytree(paths.state_folder() / name, folder / name, symlinks=True, ignore=UNFINISHED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RDMA_IMAGES_STATE", str(folder))
        yield folder
        private.down(purge=True)
    shutil.rmtree(folder)


def published(folder: Folder, stages: str) -> str:
    """Lock, build and publish the target with these stages; returns the image by digest."""
    (folder.path / "dockerfiles" / "targets" / f"{TARGET}.j2").write_text(f"{{{{ stages({stages}) }}}}\n")
    folder.run("rdma-images", "lock", "--debian", codes=(0, 1))  # 1: a vendor's address does not answer
    for command in (["git", "init", "-q"], ["git", "add", "-A"], ["git", "commit", "-qm", "An image to build twice"]):
        folder.run(*command)
    return build_and_publish(folder)


def build_and_publish(folder: Folder, *onto: str) -> str:
    """Build, validate and publish the target; returns the image by digest."""
    target = ("--target", TARGET, *onto)
    folder.run("rdma-images", "build", *target, "--rehearse", "--no-validate")
    folder.run("rdma-images", "validate", *target, codes=(0, 1))  # 1: a part of a target for EFA is left out
    checks = folder.read("report")["checks"]
    assert isinstance(checks, list)
    failed = {check["id"] for check in checks if (check["outcome"], check["severity"]) == ("failed", "error")}
    allowed = [option for name in sorted(failed) for option in ("--allow-red", name)]
    folder.run("rdma-images", "publish", *target, "--to", "local", *allowed)
    copies = folder.read("publication")["copies"]
    assert isinstance(copies, dict)
    return str(copies["local"]["ref"])


def test_an_image_and_one_onto_it_are_reproduced_by_running_their_steps_again(folder: Folder) -> None:
    base = published(folder, SMALL)
    before = folder.read("build")
    answer = folder.run("rdma-images", "reproduce", base)
    assert answer.startswith(f"equal  {base}\n")
    assert "layers of wheels were made on this machine before" in answer
    assert folder.read("build") == before
    (folder.path / "matrix.yaml").write_text(MATRIX.replace("twice", "once"))
    folder.run("rdma-images", "reproduce", base, codes=(2,))
    (folder.path / "matrix.yaml").write_text(MATRIX)
    shutil.rmtree(folder.path / "build")
    ref = build_and_publish(folder, "--onto", base)
    outcome = json.loads(folder.run("rdma-images", "reproduce", ref, "--json", codes=(0, 1)))
    assert outcome["differences"] == []
    assert outcome["equal"]


@pytest.mark.exhaustive
def test_the_whole_image_is_the_same_on_another_engine(folder: Folder, second_state: Path) -> None:
    """Its base and its wheels' layers are made there, too."""
    ref = published(folder, STAGES)
    outcome = json.loads(folder.run("rdma-images", "reproduce", ref, "--json", state=second_state, codes=(0, 1)))
    assert outcome["differences"] == []
    assert outcome["equal"]
    assert outcome["reused"] == 0
