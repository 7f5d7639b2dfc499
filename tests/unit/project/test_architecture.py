"""The order of the packages is that of the pipeline: nothing may import against it."""

import importlib
import re
import tomllib

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from rdma_images.core.paths import PROJECT

PACKAGES = PROJECT / "rdma_images"


def test_packages_import_only_from_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    assert lint_imports(cache_dir=None) == EXIT_STATUS_SUCCESS


def test_every_package_is_in_the_order() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    ordered = {name.removeprefix("rdma_images.") for name in settings["contracts"][0]["layers"]}
    assert ordered == {path.parent.name for path in PACKAGES.glob("*/__init__.py")}


def test_every_exported_name_exists() -> None:
    paths = [path for path in PACKAGES.rglob("*.py") if re.search(r"^__all__ =", path.read_text(), re.MULTILINE)]
    assert paths
    for path in paths:
        steps = path.relative_to(PROJECT).with_suffix("").parts
        module = importlib.import_module(".".join(steps).removesuffix(".__init__"))
        assert [name for name in module.__all__ if not hasattr(module, name)] == [], path


def test_no_module_lies_beside_the_packages() -> None:
    assert [path.name for path in PACKAGES.glob("*.py")] == ["__init__.py"]


def test_no_module_of_tests_imports_from_another() -> None:
    """What they share is in tests/support, or beside them under a name without test_."""
    modules = [path for path in (PROJECT / "tests").rglob("*.py") if "data" not in path.parts]
    assert [path.name for path in modules if re.search(r"^from tests\.\S*\btest_", path.read_text(), re.M)] == []


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r'\["docker", ["*]', "engine/docker_command.py"),
        (r"\((requests\.Session\)|\brequests\.(Session|get|post|put|head|request)\()", "core/http.py"),
        (r'"(build|buildkit|plan)\.json"', "core/step_files.py plan/planner.py"),
        (r"\bproject\.load\(", "ci/select.py cli/task.py"),  # whose project measures what its plans add to
    ],
    ids=["the docker command", "the HTTP session", "the files of steps", "the project of a task"],
)
def test_only_its_home_has(pattern: str, home: str) -> None:
    modules = {
        str(path.relative_to(PACKAGES)) for path in PACKAGES.rglob("*.py") if re.search(pattern, path.read_text())
    }
    assert modules == set(home.split())
