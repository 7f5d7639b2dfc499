"""Two folders with a target of one name on one engine: each command is about its own folder's image."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.build import build_record
from rdma_images.core import paths
from rdma_images.core.image import BuildRecord
from rdma_images.engine import Engine
from rdma_images.engine.debian import bootstrap
from rdma_images.render.bake import ImageTarget
from tests.support.images import planned_image

pytestmark = [pytest.mark.e2e, pytest.mark.part("small-images")]
MATRIX = """
targets:
  my-training:
    summary: mine
    fabric: efa
    template: efa-pytorch
    default: {base: debian13, pytorch: 2.15.0, efa-installer: 1.50.0}
"""
REF = "rdma-images/my-training:test-folders"


def docker(engine: Engine, *arguments: str) -> str:
    return subprocess.run(
        ["docker", *arguments], env=engine.environ(), capture_output=True, text=True, check=True
    ).stdout.strip()


def checkout(folder: Path) -> None:
    """Make a folder a checkout of its own, with a matrix of one target."""
    shutil.copytree(paths.CODE / "rdma_images", folder / "rdma_images")
    shutil.copy(paths.CODE / "tasks.py", folder)
    for name in ("facts", "dockerfiles", "validators", "locks", "pyproject.toml"):
        (folder / name).symlink_to(paths.CODE / name)
    (folder / "matrix.yaml").write_text(MATRIX)


def invoke(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engines.ensure()


@pytest.fixture
def folders(engine: Engine, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield two folders of users, whose builds one after the other took the same name in the engine."""
    docker(engine, "import", str(bootstrap.base_tar("debian13")), f"{REF}-base")
    built = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        checkout(folder)
        (folder / "context").mkdir()
        (folder / "context" / "whose").write_text(name)
        (folder / "context" / "Dockerfile").write_text(
            f"FROM {REF}-base\nCOPY whose /whose\nLABEL io.rdma-images.fabric=efa\n"
        )
        (image,) = json.loads(invoke(folder, "plan", "--json").stdout)["images"]
        target = ImageTarget(dataclasses.replace(planned_image(), id=image["id"]), Path(), REF, {}, {}, 0)
        build_record.keep_other_folders_images([target], engine, print)
        docker(engine, "build", "--quiet", "--tag", REF, str(folder / "context"))
        build = BuildRecord(image["id"], REF, docker(engine, "inspect", "--format", "{{.Id}}", REF), "", (), "", 0.0)
        record = folder / "build" / "images" / image["id"] / "build.json"
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps(dataclasses.asdict(build)))
        built.append(build.digest)
    yield tmp_path / "first", tmp_path / "second"
    subprocess.run(
        ["docker", "image", "rm", "--force", REF, *built, f"{REF}-base"], env=engine.environ(), capture_output=True
    )


def test_run_starts_the_image_of_its_own_folder(folders: tuple[Path, Path], engine: Engine) -> None:
    first, second = folders
    said = f"the name {REF} was given to another image"
    done = invoke(first, "run", "--target", "my-training", "--", "cat", "/whose")
    assert done.stdout == "first", done.stderr
    assert said in done.stderr
    done = invoke(second, "run", "--target", "my-training", "--", "cat", "/whose")
    assert done.stdout == "second", done.stderr
    assert said not in done.stderr
    described = invoke(first, "describe", "--target", "my-training")
    assert said in described.stderr
    assert f" {docker(engine, 'inspect', '--format', '{{.Id}}', REF)}" not in described.stdout
    validated = invoke(first, "validate", "--target", "my-training")
    assert said in validated.stderr, validated.stderr


def test_an_image_that_was_removed_is_not_replaced_by_anothers(folders: tuple[Path, Path], engine: Engine) -> None:
    first, _ = folders
    (record,) = first.glob("build/images/*/build.json")
    docker(engine, "image", "rm", json.loads(record.read_text())["digest"])
    for words in (["run", "--target", "my-training", "--", "true"], ["validate", "--target", "my-training"]):
        done = invoke(first, *words)
        assert done.returncode == 2
        assert "the engine does not have the image that this folder built" in done.stderr
        assert "run `invoke build --target my-training`" in done.stderr
