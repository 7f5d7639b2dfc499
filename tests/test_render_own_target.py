"""A user's own target: the example of docs/targets.md, rendered in a copy of the templates."""

import re
import shutil

import pytest

from rdma_images import facts, lock, matrix, paths, plan, render, yamlfile
from rdma_images.matrix import Matrix
from tests import locks, own_target

KNOWN = facts.load()


@pytest.fixture(autouse=True)
def _templates(tmp_path, monkeypatch):
    copy = tmp_path / "dockerfiles"
    shutil.copytree(paths.DOCKERFILES, copy)
    (copy / "targets" / f"{own_target.NAME}.j2").write_text(own_target.TEMPLATE)
    monkeypatch.setattr(paths, "DOCKERFILES", copy)
    render._environment.cache_clear()
    yield
    render._environment.cache_clear()


@pytest.fixture
def image():
    extended = yamlfile.loads(paths.MATRIX.read_text() + "\n" + own_target.ROWS, Matrix, "matrix.yaml")
    (made,) = plan.plan(extended, KNOWN, [own_target.NAME]).images
    return made


def test_it_is_planned(image):
    assert image.target == own_target.NAME
    assert image.version("nccl") == KNOWN.torch.releases[image.version("pytorch")].nccl


def test_it_has_the_packages(image):
    text = render.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS, KNOWN)
    assert re.search(r"^apt-get install .* jq$", text, re.MULTILINE)
    assert "einops==1.0 --hash=sha256:" in text
    assert "einops" in lock.asked(image).requirements


def test_it_is_efa_pytorch_otherwise(image):
    (theirs,) = plan.plan(matrix.load(), KNOWN, ["efa-pytorch"], changes=_same_row(image)).images
    ours = render.render(image, locks.wheels(theirs), locks.toolkit(image), locks.TOOLS, KNOWN)
    other = render.render(theirs, locks.wheels(theirs), locks.toolkit(theirs), locks.TOOLS, KNOWN)
    assert _stages(ours.replace(" jq\n", "\n")) == _stages(other)


def _same_row(image):
    return {axis: image.axes[axis] for axis in ("base", "pytorch", "efa-installer")}


def _stages(text):
    """Without the head, which names the target."""
    return text.split("\n\n", 1)[1]
