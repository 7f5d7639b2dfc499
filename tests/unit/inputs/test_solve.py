"""The torch and base that fit a target's packages, with our index and the real facts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.inputs import solve
from rdma_images.plan.matrix import Matrix
from tests.support.loopback import Answer, Site, serve
from tests.support.package_index import make_source, make_wheel, mirrors, publish

FACTS = facts.load()
TARGET = """
targets:
  mine:
    summary: mine
    fabric: efa
    template: efa-pytorch
    python-packages: [{packages}]
    default: {{base: debian13, pytorch: 2.15.0, efa-installer: 1.50.0}}
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    with serve() as site:
        publish(
            site,
            "torch",
            *(make_wheel("torch", version) for version in ("2.13.0", "2.14.0", "2.14.1", "2.15.0", "2.99.0")),
        )
        publish(site, "plain", make_wheel("plain", "1.0"))
        publish(
            site, "engine", make_wheel("engine", "1.0", "torch==2.13.0"), make_wheel("engine", "2.0", "torch==2.14.0")
        )
        publish(site, "old-python", make_wheel("old-python", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64"))
        publish(site, "too-old", make_wheel("too-old", "1.0", "torch<2"))
        publish(site, "a-source", make_source("a-source", "1.0", "plain"))
        yield site


def solved(index: Site, packages: str) -> solve.Solution:
    return solve.solve_target(
        yaml_file.loads(TARGET.format(packages=packages), Matrix, "matrix.yaml"), "mine", FACTS, mirrors(index)
    )


def test_a_row_that_works_stays(index: Site) -> None:
    assert solved(index, "plain") == solve.Solution("mine", {}, "")


def test_a_torch_that_a_package_needs_is_chosen(index: Site) -> None:
    answer = solved(index, "plain, engine")
    assert answer.changes == {"pytorch": "2.14.0"}
    assert "engine" in answer.reason


def test_a_python_that_a_package_has_wheels_for_decides_the_base(index: Site) -> None:
    answer = solved(index, "old-python")
    assert answer.changes == {"base": "ubuntu24.04"}
    assert "old-python==1.0 has no wheels with a matching Python" in answer.reason


@pytest.mark.parametrize("package", ["too-old", "a-source"])
def test_where_nothing_goes_together_the_first_reason_is_named(index: Site, package: str) -> None:
    with pytest.raises(RefusedError, match=f"(?s)no torch and no base has wheels of all.*{package}.*\\nchange"):
        solved(index, package)


def test_a_torch_in_the_requirements_holds(index: Site, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch<2.15\nplain\n")
    text = TARGET.format(packages="") + "    requirements: requirements.txt\n"
    answer = solve.solve_target(yaml_file.loads(text, Matrix, "matrix.yaml"), "mine", FACTS, mirrors(index))
    assert answer.changes == {"pytorch": "2.14.1"}


@pytest.mark.parametrize("status", [500, 403])
def test_an_index_that_does_not_answer_is_no_reason_to_change_a_row(index: Site, status: int) -> None:
    index.answers["/simple/plain/"] = Answer(status=status)
    with pytest.raises(RdmaImagesError, match=rf"is unreachable: .*{status}"):
        solved(index, "plain")
