"""Components: each is known in one place, and another one is added with a few files."""

import ast
import functools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images import components, facts
from rdma_images.components import package
from rdma_images.core.paths import PROJECT

RECIPE = PROJECT / "tests" / "data" / "adding-a-component"
# Where the name of a component may be beside its own module: the loaders of the facts, which are files of that name;
# the rules, which relate components; the probes, which travel into images and import nothing; and the
# reader of the package index, which fills the columns of their names.
COMPONENT_FOLDERS = ("components/", "facts/", "plan/rules/", "validate/probes/", "maintain/facts_update/")
# What every image stands on: what decides its wheels.
FOUNDATION = frozenset({"base", "python", "pytorch", "cuda", "nccl"})
# Words that mean more than the component: a log and a probe name the library, too.
AMBIGUOUS = frozenset({"libfabric", "gdrcopy"})

SCRIPT = """
import json, sys
from rdma_images import facts
from rdma_images.inputs import sources
from rdma_images.plan import matrix, planner
from rdma_images.render import dockerfiles
from rdma_images.render.labels import Revision, image_labels
from tests.support import locks
known = facts.load()
(image,) = planner.plan(matrix.load(), known, ["efa-pytorch"], changes={"ucx": "newest"}).images
print(json.dumps({
    "tag": image.tag,
    "details": planner.plan_document(image)["components"]["ucx"]["details"],
    "label": image_labels(image, "", Revision("", 0, None), [])["io.rdma-images.component.ucx"],
    "sources": [one.upstream for one in sources.pinned(image, known) if one.component == "ucx"],
    "dockerfile": dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS),
}))
"""


@functools.cache
def literals(path: Path) -> set[str]:
    """Return the string literals of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def looked_up(path: Path) -> set[str]:
    """Return the components that a module looks up by name in an image."""
    lookup = re.compile(r"""components(?:\[|\.get\()['"]([\w-]+)""")
    return set(lookup.findall(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", sorted(components.BY_NAME.keys() - FOUNDATION - AMBIGUOUS))
def test_the_name_of_a_component_is_written_where_it_is_defined_and_nowhere_else(name: str) -> None:
    modules = {str(path.relative_to(PROJECT / "rdma_images")): path for path in PROJECT.glob("rdma_images/**/*.py")}
    modules_with_name = {module for module, path in modules.items() if name in literals(path)}
    defining = {module for module in modules_with_name if module.startswith(("components/", "facts/"))}
    assert len(defining - {"facts/nccl_logs.py"}) == (0 if name in package.component_names() else 1)
    if name not in package.component_names():  # whose names are those of programs, which jobs and logs have, too
        assert not [module for module in modules_with_name if not module.startswith(COMPONENT_FOLDERS)]


def test_only_what_every_image_stands_on_is_looked_up_by_its_name() -> None:
    modules = [path for path in PROJECT.glob("rdma_images/**/*.py") if path.parent.name != "components"]
    names = set().union(*map(looked_up, modules))
    assert names
    assert names <= FOUNDATION


def test_faults_in_the_facts_are_of_what_has_a_version() -> None:
    """Of components that may refuse a plan, and of parts that are only measured in images."""
    rows = facts.load().faults.faults
    measured = {"torch"}
    assert {row.component for row in rows} <= components.BY_NAME.keys() | measured
    assert not [row for row in rows if row.component in measured and row.refuses]


def test_what_decides_a_component_comes_before_it() -> None:
    order = [component.name for component in components.ALL]
    for index, definition in enumerate(components.ALL):
        decider = (definition.bundled and definition.bundled.brought_by) or (
            definition.axis and definition.axis.decided_by
        )
        assert decider is None or decider in order[:index]


def test_every_component_has_one_way_to_its_version() -> None:
    assert all((component.axis is None) != (component.bundled is None) for component in components.ALL)


@pytest.fixture
def added(tmp_path: Path) -> Path:
    """Return a copy of the checkout, with one more component."""
    for name in ("dockerfiles", "facts", "locks", "rdma_images", "tests", "validators"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "golden"))
    for name in ("matrix.yaml", "pyproject.toml"):
        shutil.copy(PROJECT / name, tmp_path)
    shutil.copytree(RECIPE, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_component_is_added_by_new_files_alone(added: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(added)}
    completed = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=added, env=environment, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    data = json.loads(completed.stdout)
    assert data["tag"].endswith("-ucx1.20.0-py3.13-debian13")
    assert data["details"] == {"prefix": "/opt/ucx"}
    assert data["label"] == "1.20.0"
    assert data["sources"] == ["https://github.com/openucx/ucx/releases/download/v1.20.0/ucx-1.20.0.tar.gz"]
    assert "FROM with-efa-installer AS build-ucx" in data["dockerfile"]
    assert "COPY --from=build-ucx /opt/ucx /opt/ucx" in data["dockerfile"]
    assert "#   ucx 1.20.0\n" in data["dockerfile"]


def test_the_recipe_names_every_file_that_it_takes() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Adding a component\n")
    section, _, _ = section.partition("\n## ")
    rows = re.findall(r"^\| \d+ \| `([^`]+)` \|", section, re.MULTILINE)
    new = {str(path.relative_to(RECIPE)) for path in RECIPE.rglob("*") if path.is_file()}
    assert sorted(rows) == sorted(new)
