"""Packages that no index has: what decides their locks, and refusals with file and line."""

import hashlib
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import local_package, paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.plan import local_packages, planner
from rdma_images.plan.matrix import Matrix

COMMIT = "0123456789" * 4
WHEEL = "my_ops-1.0-py3-none-any.whl"
TARGET = """
targets:
  mine:
    summary: mine
    fabric: efa
    template: efa-pytorch
    python-packages:
      - numpy
      - {package}
    default: {{base: debian13, pytorch: 2.15.0, efa-installer: 1.50.0}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / WHEEL).write_bytes(b"wheel")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "My_Project"\nversion = "1.0"\n')
    (project / "code.py").write_text("x = 1\n")
    return tmp_path


def pin(text: str) -> str:
    return local_packages.pin(text, paths.PROJECT, "requirements.txt:3")


def test_a_wheel_is_locked_by_its_content() -> None:
    digest = hashlib.sha256(b"wheel").hexdigest()
    assert pin(f"./wheels/{WHEEL}") == f"my-ops @ ./wheels/{WHEEL}#sha256={digest}"
    assert pin(f"my_ops[x] @ wheels/{WHEEL}") == f"my_ops[x] @ ./wheels/{WHEEL}#sha256={digest}".replace(
        "my_ops", "my-ops", 1
    )


def test_a_part_that_a_target_may_name_comes_from_a_commit_of_the_users_choice() -> None:
    requirement = f"deep_ep @ git+https://example/DeepEP@{'0' * 40}"
    assert pin(requirement) == requirement


def test_a_project_is_locked_by_what_says_its_requirements(folder: Path) -> None:
    before = pin("./project[fast, x] ; python_version > '3.9'")
    assert before.startswith("My_Project[fast, x] @ ./project#metadata=")
    assert before.endswith(" ; python_version > '3.9'")
    (folder / "project" / "code.py").write_text("x = 2\n")
    assert pin("./project[fast, x] ; python_version > '3.9'") == before
    (folder / "project" / "requirements.txt").write_text("numpy\n")
    assert pin("./project[fast, x] ; python_version > '3.9'") != before


def test_a_setup_py_alone_needs_its_name(folder: Path) -> None:
    (folder / "old").mkdir()
    (folder / "old" / "setup.py").write_text("from setuptools import setup; setup(name='old')\n")
    assert pin("old @ ./old").startswith("old @ ./old#metadata=")


def test_a_commit_is_locked_by_itself_and_read_back() -> None:
    text = f"ops[x] @ git+https://git.example/team/ops@{COMMIT}#subdirectory=python"
    assert pin(text) == text
    package = local_package.parse(text.partition(" @ ")[2])
    assert package
    assert (package.kind, package.address, package.digest) == ("commit", "https://git.example/team/ops", COMMIT)
    assert package.subfolder == "python"
    assert package.origin == text.partition(" @ ")[2]


@pytest.mark.parametrize("text", ["numpy", "numpy>=1.2", "numpy[x]==1; python_version<'3'", "wheels.tools==1"])
def test_packages_of_an_index_stay_as_they_are(text: str) -> None:
    assert pin(text) == text
    assert not local_packages.is_address(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ops @ git+https://git.example/ops@main", "names no repository at a whole commit, and branches and tags move"),
        ("ops @ git+https://git.example/ops", "at a whole commit"),
        (f"ops @ git+https://git.example/ops@{COMMIT[:12]}", "at a whole commit"),
        (f"git+https://git.example/ops@{COMMIT}", "does not say which package it is\nwrite ops @ ".partition("\n")[0]),
        (f"ops @ git+https://me:secret@git.example/ops@{COMMIT}", "a login in the address\nremove it"),
        (f"ops @ git+https://token@git.example/ops@{COMMIT}", "a login in the address\nremove it"),
        (f"ops @ git+file:///srv/ops@{COMMIT}", "names no repository"),
        ("https://me:secret@host.example/x-1-py3-none-any.whl", "a login in the address"),
        ("https://host.example/x-1-py3-none-any.whl", "is outside of the folder of matrix.yaml\ncopy it into"),
        ("../x", "is outside of the folder of matrix.yaml\ncopy it there"),
        ("./link", "is outside of the folder of matrix.yaml\ncopy it there"),
        ("/srv/x", "is outside of the folder"),
        ("~/x", "is outside of the folder"),
        ("./absent", "no such file or folder"),
        ("./wheels", "wheels has no pyproject.toml"),
        ("./nameless", "its pyproject.toml does not say its name\nwrite NAME @ ./nameless"),
        ("./broken", "broken/pyproject.toml: "),
        ("other @ ./project", "'./project' is the package My_Project\nwrite My_Project @ ./project"),
        ("./torch-2.0-py3-none-any.whl", "the axis pytorch decides the version of torch"),
        ("./x.whl", "'x.whl' is neither a wheel nor a folder"),
    ],
)
def test_what_cannot_be_is_refused_with_file_and_line(folder: Path, text: str, sentence: str) -> None:
    (folder / "link").symlink_to("/usr")
    (folder / "nameless").mkdir()
    (folder / "nameless" / "setup.py").touch()
    (folder / "broken").mkdir()
    (folder / "broken" / "pyproject.toml").write_text("[")
    (folder / "torch-2.0-py3-none-any.whl").touch()
    (folder / "x.whl").touch()
    with pytest.raises(RefusedError) as caught:
        pin(text)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("requirements.txt:3: ")
    assert "\n" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_target_names_them_and_a_fault_has_the_line_in_matrix_yaml() -> None:
    (image,) = planner.plan(
        yaml_file.loads(TARGET.format(package="./project"), Matrix, "matrix.yaml"), facts.load()
    ).images
    assert image.python_packages[1].startswith("My_Project @ ./project#metadata=")
    with pytest.raises(RefusedError, match=r"^matrix\.yaml:9: './absent'"):
        planner.plan(yaml_file.loads(TARGET.format(package="./absent"), Matrix, "matrix.yaml"), facts.load())
