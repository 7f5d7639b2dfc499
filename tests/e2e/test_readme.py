"""What a new user types in a clean clone: the README's first command, its report, a wheel."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from uv import find_uv_bin

from rdma_images.core import locking, paths

pytestmark = [pytest.mark.e2e, pytest.mark.part("engine")]

IMAGE = "efa-pytorch-2.15.0"


def commands() -> list[str]:
    """Return the shell commands of the README, in its order."""
    text = (paths.PROJECT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```sh\n(.+?)\n```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clean clone of what is committed, with an environment of its own.

    It has what the project declares to need, by uv: pip, which the README has users type, takes ten times as long.
    """
    folder = tmp_path_factory.mktemp("user")
    subprocess.run(["git", "clone", "--quiet", str(paths.PROJECT), str(folder / "clone")], check=True)
    (folder / "tmp").mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    args = ["--python", str(folder / "venv" / "bin" / "python"), "--requirements", str(folder / "clone/pyproject.toml")]
    subprocess.run([find_uv_bin(), "pip", "install", "--quiet", "--no-cache", *args], check=True)
    return folder / "clone"


def typed(command: str, clone: Path) -> subprocess.Popen[str]:
    venv = clone.parent / "venv"
    path = f"{venv / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "VIRTUAL_ENV": str(venv), "PATH": path, "TMPDIR": str(clone.parent / "tmp")}
    environ["PIP_COMPILE"] = "0"  # half of what it installs is imported by nothing here
    environ.pop("PYTHONPATH", None)  # what is installed in the environment must be enough
    return subprocess.Popen(
        ["bash", "-c", command],
        cwd=clone,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run_command(command: str, clone: Path) -> str:
    """Return the command's output; fails with it where the command fails."""
    with typed(command, clone) as process:
        output = process.communicate()[0]
    assert process.returncode == 0, output[-4000:]
    return output


@pytest.fixture(scope="module")
def first(clone: Path) -> str:
    return run_command(commands()[0], clone)


def is_building(process: subprocess.Popen[str]) -> bool:
    """Return whether this command, which leads a session of its own, holds the lock of builds."""
    holder = locking.holders().get("build")
    try:
        return holder is not None and os.getpgid(holder.pid) == process.pid
    except ProcessLookupError:
        return False


def image_folder(clone: Path, start: str = IMAGE) -> Path:
    folders = list((clone / "build" / "images").glob(f"{start}*"))
    assert len(folders) == 1
    return folders[0]


def test_the_first_command_ends_with_a_validated_image(first: str, clone: Path) -> None:
    report = json.loads((image_folder(clone) / "report.json").read_text(encoding="utf-8"))
    failed = [
        check["id"] for check in report["checks"] if check["outcome"] == "failed" and check["severity"] == "error"
    ]
    assert failed == []
    passed = {check["id"] for check in report["checks"] if check["outcome"] == "passed"}
    assert {"nccl.single", "nccl.loaded", "nccl.matrix", "plugin.found", "verbs.ibv-devinfo"} <= passed
    counts = first.splitlines()[-2].strip()
    assert " passed" in counts
    # Where AWS's installer is reached, the image is not the one that the README shows.
    assert counts in (clone / "README.md").read_text(encoding="utf-8") or "efa-installer" not in counts


def test_a_rehearsal_says_so_everywhere(first: str, clone: Path) -> None:
    build = json.loads((image_folder(clone) / "build.json").read_text(encoding="utf-8"))
    report = json.loads((image_folder(clone) / "report.json").read_text(encoding="utf-8"))
    if not build["stand_ins"]:
        pytest.skip("every source is within reach here: this was no rehearsal")
    assert build["ref"].endswith("-rehearsal")
    assert report["stand_ins"] == build["stand_ins"]
    assert "a rehearsal without" in first.splitlines()[-2]


@pytest.mark.usefixtures("first")
def test_the_same_command_again_does_nothing(clone: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in image_folder(clone).glob("build.json")}
    output = run_command("invoke build --target efa-pytorch --rehearse", clone)
    assert "nothing to build" in output
    assert "load build definition" not in output
    assert before == {path: path.stat().st_mtime_ns for path in image_folder(clone).glob("build.json")}


def interrupt(command: str, folder: Path) -> str:
    """Press Ctrl-C as soon as the command builds; return what it printed."""
    with typed(command, folder) as process:
        while not is_building(process):
            assert process.poll() is None, "the build ended before it was seen"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert not is_building(process)
    return output


@pytest.mark.usefixtures("first")
def test_the_wheel_builds_in_a_folder_of_ones_own_also_after_an_interrupted_build(clone: Path) -> None:
    # The last test: in this environment, the wheel takes the place of the clone's code.
    outside = clone.parent / "outside"
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(outside / "dist")]
    subprocess.run(wheel, cwd=clone, check=True, capture_output=True)
    *install, build_line = commands()[1].splitlines()
    run_command("\n".join(("set -e", *install)), outside)
    folder = outside / "images"
    build_line = f"cd images && {build_line}"
    output = interrupt(build_line, outside)
    assert "Traceback" not in output
    assert not list(folder.glob("build/images/my-training-*/build.json"))
    assert not list((clone.parent / "tmp").glob("rdma-images-*"))
    output = run_command(build_line, outside)
    assert " passed" in output.splitlines()[-2]
    build = json.loads((image_folder(folder, "my-training") / "build.json").read_text(encoding="utf-8"))
    report = json.loads((image_folder(folder, "my-training") / "report.json").read_text(encoding="utf-8"))
    assert report["stand_ins"] == build["stand_ins"]
    assert {"nccl.single", "plugin.found"} <= {
        check["id"] for check in report["checks"] if check["outcome"] == "passed"
    }
    assert str(clone.parent / "venv") in run_command(
        "python -c 'import rdma_images; print(rdma_images.__file__)'", outside
    )
