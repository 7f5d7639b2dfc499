"""Templates of targets: a missing one is found early."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.plan.target_files import template_problem
from tests.support.images import planned_image


@pytest.fixture
def user_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of templates of a user's own."""
    folder = tmp_path / "dockerfiles"
    (folder / "targets").mkdir(parents=True)
    monkeypatch.setattr(paths, "data_folders", lambda part: (tmp_path / part, paths.DATA / part))
    return folder


def with_template(template: str) -> Image:
    return replace(planned_image(), template=template)


def test_a_target_without_a_template_is_offered_those_of_targets(user_templates: Path) -> None:
    (user_templates / "targets" / "efa-pytorch-of-mine.j2").touch()
    problem = template_problem(with_template("efa-pytorch-of-mines")) or ""
    assert "targets/efa-pytorch-of-mines.j2: no such template, for target efa-pytorch\n" in problem
    assert "did you mean efa-pytorch-of-mine or efa-pytorch" in problem
    assert "onto-efa" not in problem  # of --onto, and no target's
