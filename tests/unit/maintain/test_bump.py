"""Newer rows as an edit of matrix.yaml."""

from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.maintain import bump
from rdma_images.plan import matrix
from rdma_images.plan.matrix import Matrix

FACTS = facts.load()
TEXT = """\
# Mine
targets:
  mine:
    summary: Mine   # 2.14.0 in a comment stays
    fabric: efa
    default:
      base: debian13
      pytorch: 2.14.0          # was 2.14.0 for a reason
      nccl: 2.30.7
      efa-installer: 1.47.0
    values:
      pytorch: [2.14.0, 2.13.0]
      base:
        - debian13
        - ubuntu24.04
    exclude:
      - when: {base: ubuntu24.04, pytorch: [2.13.0, 2.14.0]}
        reason: none
  other:
    summary: Other
    fabric: erdma
    default: {base: ubuntu22.04, pytorch: 2.14.0}
"""


def read(text: str) -> Matrix:
    return yaml_file.loads(text, Matrix, "matrix.yaml")


def test_the_newest_that_work_together() -> None:
    bumps = {(b.target, b.axis): b.new for b in bump.find_bumps(read(TEXT), FACTS)}
    assert bumps == {
        ("mine", "pytorch"): "2.15.0",
        ("mine", "nccl"): "2.32.3",
        ("mine", "efa-installer"): "1.51.0",
        ("other", "pytorch"): "2.14.1",  # 2.15.0 has no wheel for the python of its base
    }


def test_the_edit_keeps_comments_and_other_targets() -> None:
    current = read(TEXT)
    after = bump.edit_matrix(TEXT, current, bump.find_bumps(current, FACTS))
    assert "summary: Mine   # 2.14.0 in a comment stays" in after
    assert "pytorch: 2.15.0          # was 2.14.0 for a reason" in after
    assert "pytorch: [2.15.0, 2.13.0]" in after
    assert "{base: ubuntu24.04, pytorch: [2.13.0, 2.15.0]}" in after
    assert "default: {base: ubuntu22.04, pytorch: 2.14.1}" in after
    assert len(after.splitlines()) == len(TEXT.splitlines())


def test_a_value_that_is_there_already_is_not_written_twice() -> None:
    text = TEXT.replace("[2.14.0, 2.13.0]", "[2.14.0, 2.15.0]").replace("[2.13.0, 2.14.0]", "2.14.0")
    current = read(text)
    after = read(bump.edit_matrix(text, current, bump.find_bumps(current, FACTS)))
    assert after.target("mine").default["pytorch"] == "2.15.0"
    assert after.target("mine").values["pytorch"] == ("2.14.0", "2.15.0")


def test_a_version_that_contains_the_old_one_stays() -> None:
    text = TEXT.replace("    values:\n", "    values:\n      nccl: [2.30.70, 12.30.7, 2.30.7]\n", 1)
    after = bump.edit_matrix(text, read(text), (bump.AxisBump("mine", "nccl", "2.30.7", "2.32.3"),))
    assert "      nccl: [2.30.70, 12.30.7, 2.32.3]\n" in after


def test_shown_then_written(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(TEXT)
    proposal = bump.propose(FACTS, path)
    assert "+      efa-installer: 1.51.0" in proposal.diff
    assert path.read_text() == TEXT
    assert bump.propose(FACTS, path, write=True) == proposal
    assert matrix.load(path).target("mine").default["efa-installer"] == "1.51.0"
    assert bump.propose(FACTS, path) == bump.Proposal("", ())


def test_what_a_person_has_to_look_at(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(TEXT)
    comment, gap = bump.propose(FACTS, path).remarks
    assert comment == 'matrix.yaml:8: is the comment still true? "was 2.14.0 for a reason"'
    assert gap.startswith("mine: not known: which net ABI versions aws-ofi-nccl 1.22.0 exports")


def test_a_value_that_the_facts_do_not_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(TEXT.replace("base: ubuntu22.04, pytorch: 2.14.0", "base: ubuntu22.04, pytorch: 2.14.9"))
    with pytest.raises(RefusedError, match=r"matrix\.yaml:22: pytorch '2\.14\.9' is not known"):
        bump.propose(FACTS, path)
