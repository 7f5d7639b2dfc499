"""A user's own target: the example of docs/reference/targets.md, rendered in a copy of the templates."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, yaml_file
from rdma_images.core.image import Image
from rdma_images.inputs import lock
from rdma_images.plan import matrix, planner
from rdma_images.plan.matrix import Matrix
from rdma_images.render import dockerfiles
from tests.support import locks, own_target

FACTS = facts.load()


@pytest.fixture(autouse=True)
def _templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    copy = tmp_path / "dockerfiles"
    shutil.copytree(paths.DATA / "dockerfiles", copy)
    (tmp_path / "facts").symlink_to(paths.FACTS)
    (copy / "targets" / f"{own_target.NAME}.j2").write_text(own_target.TEMPLATE)
    monkeypatch.setattr(paths, "DATA", tmp_path)
    dockerfiles.template_environment.cache_clear()
    yield
    dockerfiles.template_environment.cache_clear()


@pytest.fixture
def image() -> Image:
    extended = yaml_file.loads(paths.MATRIX.read_text() + "\n" + own_target.ROWS, Matrix, "matrix.yaml")
    (planned,) = planner.plan(extended, FACTS, [own_target.NAME]).images
    return planned


def test_it_is_planned(image: Image) -> None:
    assert image.target == own_target.NAME
    assert image.version("nccl") == FACTS.torch.releases[image.version("pytorch")].nccl


def test_it_has_the_packages(image: Image) -> None:
    text = dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)
    assert re.search(r"^apt-get install .* jq$", text, re.MULTILINE)
    assert "einops==1.0 --hash=sha256:" in text
    assert "einops" in lock.lock_request(image).requirements


def test_it_is_efa_pytorch_otherwise(image: Image) -> None:
    (theirs,) = planner.plan(matrix.load(), FACTS, ["efa-pytorch"], changes=_same_row(image)).images
    ours = dockerfiles.render(image, locks.wheels(theirs), locks.toolkit(image), locks.TOOLS)
    other = dockerfiles.render(theirs, locks.wheels(theirs), locks.toolkit(theirs), locks.TOOLS)
    assert _stages(ours.replace(" jq\n", "\n")) == _stages(other)


def _same_row(image: Image) -> dict[str, str]:
    return {axis: image.axes[axis] for axis in ("base", "pytorch", "efa-installer")}


def _stages(text: str) -> str:
    """Without the head, which names the target."""
    return text.split("\n\n", 1)[1]


def test_a_package_without_a_wheel_is_built_on_the_base(image: Image) -> None:
    image = replace(image, python_packages=(*image.python_packages, "bare"), source_packages=("bare",))
    text = dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)
    wheels, _, builder_text = text.partition("AS source-builder")
    assert "bare==1.0 --hash" in builder_text
    assert "bare==" not in wheels
