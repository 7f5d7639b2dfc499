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

from rdma_images import engine as engines
from rdma_images.core import locking, paths

pytestmark = pytest.mark.e2e

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


def building() -> str:
    """Return what is being built, as others who wait for it read."""
    holder = locking.holders().get("build")
    return holder.purpose if holder else ""


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


@pytest.mark.usefixtures("first")
def test_an_interrupted_build_leaves_nothing_in_the_way(clone: Path) -> None:
    # A fabric that no other test builds, so that BuildKit has it still to make; at its first word it is at work.
    command = "invoke build --target efa-pytorch --rehearse --set efa-installer=1.46.0 --no-validate"
    log = clone / "build" / "buildkit.log"
    log.unlink(missing_ok=True)
    with typed(command, clone) as process:
        while not log.exists() or "load build definition" not in log.read_text(encoding="utf-8"):
            assert process.poll() is None, "the build ended before BuildKit began"
            time.sleep(0.1)
        assert "efa1.46.0" in building()
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "Traceback" not in output
    assert "efa1.46.0" not in building()
    interrupted = [folder for folder in (clone / "build" / "images").iterdir() if "efa1.46.0" in folder.name]
    assert [path.name for path in interrupted[0].iterdir() if path.name == "build.json"] == []
    assert not list((clone.parent / "tmp").glob("rdma-images-*"))
    assert "efa1.46.0" in run_command(command, clone)
    (record,) = interrupted[0].glob("build.json")
    ref = json.loads(record.read_text(encoding="utf-8"))["ref"]
    subprocess.run(["docker", "image", "rm", ref], env=engines.ensure().environ(), capture_output=True, check=True)


@pytest.mark.usefixtures("first")
def test_the_wheel_builds_in_a_folder_of_ones_own(clone: Path) -> None:
    # The last test: in this environment, the wheel takes the place of the clone's code.
    outside = clone.parent / "outside"
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(outside / "dist")]
    subprocess.run(wheel, cwd=clone, check=True, capture_output=True)
    output = run_command(f"set -e\n{commands()[1]}", outside)
    assert " passed" in output.splitlines()[-2]
    build = json.loads((image_folder(outside / "images", "my-training") / "build.json").read_text(encoding="utf-8"))
    report = json.loads((image_folder(outside / "images", "my-training") / "report.json").read_text(encoding="utf-8"))
    assert report["stand_ins"] == build["stand_ins"]
    assert {"nccl.single", "plugin.found"} <= {
        check["id"] for check in report["checks"] if check["outcome"] == "passed"
    }
    assert str(clone.parent / "venv") in run_command(
        "python -c 'import rdma_images; print(rdma_images.__file__)'", outside
    )
