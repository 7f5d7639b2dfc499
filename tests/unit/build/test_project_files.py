"""Packages of no index as build contexts: only changed code is built again."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.build import project_files, source_wheels
from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Lock, Wheel
from rdma_images.plan.local_packages import pin
from rdma_images.render import dockerfiles
from tests.support import locks
from tests.support.images import planned_image
from tests.support.source_packages import make_spec

WHEEL = "my_ops-1.0-py3-none-any.whl"
MIRRORS = Mirrors(Path("none.pem"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "build" / "images")
    (tmp_path / WHEEL).write_bytes(b"wheel")
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text('[project]\nname = "my-project"\n')
    (tmp_path / "project" / "src" / "code.py").write_text("x = 1\n")
    (tmp_path / ".dockerignore").write_text("project/notes.txt\n")
    return tmp_path


@pytest.fixture
def image(folder: Path) -> Image:
    pins = (pin(text, folder, "matrix.yaml:3") for text in (f"./{WHEEL}", "./project"))
    return replace(planned_image(), python_packages=tuple(pins))


def lock(image: Image) -> Lock:
    local_wheels = (
        Wheel(name="my-ops", version="1.0", file=WHEEL, sha256="00", size=5, origin=f"./{WHEEL}"),
        Wheel(name="my-project", version="", origin="./project"),
    )
    return locks.wheels(image).model_copy(update={"wheels": (*locks.wheels(planned_image()).wheels, *local_wheels)})


def test_code_decides_the_digest_and_what_tools_write_does_not(image: Image, folder: Path) -> None:
    before = project_files.package_digests(image, lock(image))
    assert list(before) == ["my-ops", "my-project"]
    (folder / "project" / "notes.txt").write_text("mine\n")
    (folder / "project" / "src" / "__pycache__").mkdir()
    (folder / "project" / "src" / "__pycache__" / "code.pyc").touch()
    assert project_files.package_digests(image, lock(image)) == before
    (folder / "project" / "src" / "code.py").write_text("x = 2\n")
    after = project_files.package_digests(image, lock(image))
    assert (after["my-ops"] == before["my-ops"], after["my-project"] == before["my-project"]) == (True, False)


def test_contexts_have_the_files_and_no_others(image: Image, folder: Path) -> None:
    (folder / "project" / "notes.txt").write_text("mine\n")
    for _ in range(2):  # a second build finds the folders of the first
        contexts = project_files.package_contexts(image, lock(image), MIRRORS)
    assert list(contexts) == ["package-my-ops", "package-my-project"]
    listed = [sorted(path.name for path in Path(context).rglob("*")) for context in contexts.values()]
    assert listed == [[WHEEL], ["code.py", "pyproject.toml", "src"]]


def test_changed_code_is_another_wheel(image: Image) -> None:
    source = lock(image).wheels[-1]
    spec = make_spec(planned_image())
    keys = {
        source_wheels.wheel_key(replace(spec, packages={"my-project": digest}), source, ())
        for digest in ("sha256:1", "sha256:2")
    }
    assert len(keys) == 2


def test_own_packages_are_a_layer_of_their_own_above_those_of_an_index(image: Image) -> None:
    wheels = lock(image)
    built = Wheel(name="from-index", version="1", file="from_index-1.tar.gz", sha256="00", size=5)
    wheels = wheels.model_copy(update={"wheels": (*wheels.wheels, built)})
    text = dockerfiles.render(image, wheels, locks.toolkit(image), locks.TOOLS)
    stage = text[text.index("AS with-source-packages") :]
    assert stage.index("--from=wheels-from-source") < stage.index("--from=local-packages")
    assert "--mount=type=bind,from=package-my-project,target=/mnt/project,rw" in text
    assert "COPY --link --from=package-my-ops / /" in text
    assert "CUDA_HOME" not in text
