"""The guide "Your own work in an image", run as it is written."""

import json
import os
import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.core import paths
from tests.e2e import private_engine
from tests.support import wheel

pytestmark = [pytest.mark.e2e, pytest.mark.part("projects"), private_engine.needs]

PAGE = (paths.PROJECT / "docs" / "guides" / "own-image.md").read_text(encoding="utf-8")
TARGET = "my-work"  # the page's name is the README's, too, and the engine is shared with its tests
START, BUILD = re.findall(r"^```sh\n(.*?)^```$", PAGE.replace("my-training", TARGET), re.MULTILINE | re.DOTALL)[:2]
(MATRIX,) = re.findall(r"^```yaml init\n(.*?)^```$", PAGE.replace("my-training", TARGET), re.MULTILINE | re.DOTALL)
IMPORTS = "import deepspeed, my_trainer, transformers"
FILES = {
    "requirements.txt": "transformers\n",
    "train.py": "import my_trainer\nprint('training', my_trainer.STEPS)\n",
    "my-trainer/pyproject.toml": textwrap.dedent("""
        [build-system]
        requires = ["setuptools"]
        build-backend = "setuptools.build_meta"

        [project]
        name = "my-trainer"
        version = "0.1"
        dependencies = ["einops"]
    """),
    "my-trainer/my_trainer/__init__.py": "import einops, torch\n\nSTEPS = 3\n",
}


class Folder:
    """The user's folder, and the commands of the page in it."""

    def __init__(self, path: Path, program: Path) -> None:
        self.path = path
        self.environ = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    def typed(self, line: str) -> str:
        """Return what a line of the page prints."""
        done = subprocess.run(
            ["sh", "-ec", line],
            cwd=self.path,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def ref(self) -> str:
        """Return the name of the image that was built last."""
        (record,) = self.path.glob("build/images/*/build.json")
        return str(json.loads(record.read_text())["ref"])

    def layers(self) -> list[str]:
        """Return the layers of the image that was built last."""
        inspect = ["docker", "image", "inspect", self.ref(), "--format", "{{json .RootFS.Layers}}"]
        shown = subprocess.run(inspect, env=engines.ensure().environ(), capture_output=True, check=True)
        layers: list[str] = json.loads(shown.stdout)
        return layers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    top = tmp_path_factory.mktemp("user")
    for name, text in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    program = wheel.installed(tmp_path_factory.mktemp("wheel"))
    Folder(top, program).typed(START)
    project_folder = Folder(top / "images", program)
    (project_folder.path / "matrix.yaml").write_text(MATRIX)
    *_, build, _imports, _run = BUILD.splitlines()
    project_folder.typed(build)
    yield project_folder
    listing = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", f"rdma-images/{TARGET}"]
    environ = engines.ensure().environ()
    names = subprocess.run(listing, env=environ, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "image", "rm", *names], env=environ, capture_output=True, check=True)


def test_the_page_builds_an_image_that_imports_all_and_runs_the_script(folder: Folder) -> None:
    plan, _build, imports, run = BUILD.splitlines()
    assert TARGET in folder.typed(plan)
    assert IMPORTS in imports
    folder.typed(imports)
    assert folder.typed(run) == "training 3\n"


def test_a_changed_script_is_one_layer(folder: Folder) -> None:
    changes = changed_layers = 0
    while changed_layers != 1 and changes < 2:  # twice where another worker has filled the cache meanwhile
        changes += 1
        first = folder.layers()
        with (folder.path / "train.py").open("a") as script:
            script.write("print('changed')\n")
        folder.typed(f"{BUILD.splitlines()[1]} --no-validate")
        second = folder.layers()
        changed_layers = [before == after for before, after in zip(first, second, strict=True)].count(False)
    assert changed_layers == 1
    assert first[-1] != second[-1]


def test_a_changed_project_leaves_what_is_below(folder: Folder) -> None:
    before = folder.layers()
    code = folder.path / "my-trainer" / "my_trainer" / "__init__.py"
    code.write_text(code.read_text().replace("3", "4"))
    folder.typed(f"{BUILD.splitlines()[1]} --no-validate")
    assert len(set(folder.layers()) - set(before)) <= 4  # its own, and above it the user's: account, folders and files
    assert folder.typed(f"rdma-images run --target {TARGET}").startswith("training 4\nchanged\n")
