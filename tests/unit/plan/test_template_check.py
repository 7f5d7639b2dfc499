"""Templates of targets and the stages that they name: missing ones are found early."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.plan.template_check import template_problem
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


def test_a_stage_that_is_missing_is_named_with_the_template(user_templates: Path) -> None:
    target = user_templates / "targets" / "mine.j2"
    target.write_text('{{ stages("base", "wheelz", "environment") }}\n', encoding="utf-8")
    problem = template_problem(with_template("mine")) or ""
    assert problem.startswith(f"{target}: names the stage wheelz, which has no template\nwrite ")
    assert "dockerfiles/stages/wheelz.j2, or correct the name: did you mean wheels or " in problem


@pytest.mark.parametrize("text", ['{{ stages(*["base", first]) }}', '{{ stages("base" if has("x") else "y") }}'])
def test_stages_that_are_computed_are_left_to_the_build(user_templates: Path, text: str) -> None:
    (user_templates / "targets" / "mine.j2").write_text(text, encoding="utf-8")
    assert template_problem(with_template("mine")) is None
