"""matrix.yaml: strict, with file and line."""

import re

import pytest

from rdma_images import facts
from rdma_images.core import yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.plan import matrix

FACTS = facts.load()
TARGET = """\
targets:
  mine:
    summary: Mine
    fabric: efa
    default:
      base: debian13
      pytorch: 2.15.0
      efa-installer: 1.50.0
"""


def read(more: str = "", text: str = TARGET) -> matrix.Matrix:
    return yaml_file.loads(text + more, matrix.Matrix, "matrix.yaml")


def refused(more: str = "", text: str = TARGET, with_facts: bool = False) -> str:
    with pytest.raises(RefusedError) as error:
        read(more, text).check(FACTS) if with_facts else read(more, text)
    return str(error.value)


def test_ours_is_fine() -> None:
    ours = matrix.load()
    ours.check(FACTS)
    assert ours.targets["efa-pytorch"].default["base"] == "debian13"


def test_rows_begin_with_the_default_row() -> None:
    rows = read("    values: {base: [ubuntu24.04, debian13], pytorch: [2.14.1, 2.15.0]}").target("mine").rows()
    assert len(rows) == 4
    assert (rows[0]["base"], rows[0]["pytorch"]) == ("debian13", "2.15.0")


def test_excluded_rows_are_no_rows() -> None:
    more = "    values: {base: [ubuntu24.04, debian13]}\n    exclude: [{when: {base: ubuntu24.04}, reason: why}]"
    assert [row["base"] for row in read(more).target("mine").rows()] == ["debian13"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("      pytorhc: 2.14.1", "matrix.yaml:9: pytorhc: no such axis: did you mean pytorch"),
        ("      base: debian12", "matrix.yaml:9: 'base' is written twice, first in line 6"),
        ("    colour: red", "matrix.yaml:9: unknown key 'colour' in targets.mine"),
        ("    values:\n      base: [debian12]", "matrix.yaml:10: the default base 'debian13' is not among the values"),
        ("    exclude: [{when: {base: debian13}}]", "has no 'reason': add it"),
        ("    values: {pytorch: [2.15.1, 2.14.1]}", "'2.15.0' is not among the values: add it, or did you mean 2.15.1"),
        (
            '    debian-packages:\n      - jq\n      - "x; touch /y"',
            "matrix.yaml:11: targets.mine.debian-packages.1: 'x; touch /y' is no Debian package",
        ),
        ("    python-packages: [numpy, not a req!!]", "matrix.yaml:9: 'not a req!!' is no Python package"),
        ("    source-packages: [Inotify_Simple]", "'Inotify_Simple' is no package's name: write inotify-simple"),
        ("    package-options: {Deep_EP: {patch: a.patch}}", "'Deep_EP' is no package's name: write deep-ep"),
        ("    package-options: {deep-ep: {env: {A-B: x}}}", "'A-B' is no name of a variable"),
        ("    package-options: {nixl: {no-deps: ''}}", "at least 1 character"),
        ("    python-packages: [torch==2.0.0]", "matrix.yaml:9: the axis pytorch decides the version of torch"),
        ("    python-packages: [nvidia-nccl-cu13]", "the axis nccl decides the version of nvidia-nccl-cu13: remove"),
        (
            "    python-packages: ['numpy @ wheels/numpy']",
            "'numpy @ wheels/numpy' is no Python package: write name, name==1.2, ./PATH or the like",
        ),
    ],
)
def test_what_is_wrong_and_where(more: str, sentence: str) -> None:
    assert sentence in refused(more)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("      base: debian13\n", "matrix.yaml:5: the default row of a target for efa has no base: add one"),
        (
            "      efa-installer: 1.50.0\n",
            "matrix.yaml:5: the default row of a target for efa has no efa-installer: add one",
        ),
        ("    summary: Mine\n", "targets.mine has no 'summary'"),
    ],
)
def test_what_is_missing(line: str, sentence: str) -> None:
    assert sentence in refused(text=TARGET.replace(line, ""))


def test_one_package_under_two_conditions() -> None:
    more = "    python-packages: ['numpy<2; python_version<\"3.11\"', 'numpy; python_version>=\"3.11\"']"
    assert len(read(more).target("mine").python_packages) == 2


def test_a_name_that_no_folder_can_have() -> None:
    assert "take up to 100 small letters" in refused(text=TARGET.replace("mine", "m" * 101))
    assert read(text=TARGET.replace("mine", "m" * 100)).targets


@pytest.mark.parametrize("name", ["../evil", "EFA", "a b", "a/b", "-a", "a..b"])
def test_a_name_that_no_image_can_have(name: str) -> None:
    error = refused(text=TARGET.replace("mine", f'"{name}"'))
    assert re.search(rf"^matrix\.yaml:2: .*'{re.escape(name)}' cannot name an image", error)


def test_no_target() -> None:
    assert refused(text="targets: {}\n") == "matrix.yaml:1: there is no target: add one"


def test_values_of_an_axis_that_the_target_lacks() -> None:
    text = TARGET.replace("      pytorch: 2.15.0\n", "")
    assert "the default row has no pytorch" in refused("    values: {pytorch: [2.15.0]}", text)


def test_unknown_value_with_its_place_and_the_near_ones() -> None:
    error = refused(text=TARGET.replace("2.15.0", "2.15.9"), with_facts=True)
    assert error.startswith("matrix.yaml:7: pytorch 2.15.9: no such value: did you mean ")
    assert "2.15.0" in error


def test_unknown_target() -> None:
    with pytest.raises(RefusedError, match=r"efa-pytroch: no such target\ndid you mean efa-pytorch"):
        matrix.load().target("efa-pytroch")
