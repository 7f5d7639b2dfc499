"""A pull request builds what it changes: real commits, judged by the clone's own code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.core.paths import PROJECT

pytestmark = [pytest.mark.e2e, pytest.mark.part("publish")]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(PROJECT), str(folder)], check=True)
    return folder


def commit(clone: Path, path: str, line: str) -> None:
    with (clone / path).open("a") as file:
        file.write(line)
    author = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", "-C", str(clone), *author, "commit", "-qam", "a change"], check=True)


def targets(clone: Path) -> set[str]:
    command = [sys.executable, "-m", "invoke", "ci.matrix", "--changed-since", "HEAD~1"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True)
    assert "cannot tell" not in done.stderr, done.stderr
    return {row["target"] for row in json.loads(done.stdout)["include"]}


def test_documents_change_no_image(clone: Path) -> None:
    commit(clone, "README.md", "\nMore words.\n")
    assert targets(clone) == set()


def test_a_template_changes_the_images_made_from_it(clone: Path) -> None:
    commit(clone, "dockerfiles/targets/efa-pytorch.j2", "# a change\n")
    changed = targets(clone)
    assert "efa-pytorch" in changed
    assert not any(target.startswith("erdma") for target in changed)
