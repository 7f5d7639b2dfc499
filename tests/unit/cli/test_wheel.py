"""What a user has who installs the wheel: the command, in any folder, as any user, with no checkout around it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from rdma_images.core import paths
from tests.support import wheel

LOG = paths.PROJECT / "tests" / "data" / "nccl-logs" / "net-socket.log"
NOBODY = 65534  # the user "nobody"


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.installed(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def user(command: Path) -> int | None:
    """Nobody, where the tests run as root and nobody may run their Python; otherwise the user of the tests."""
    if os.geteuid() != 0:
        return None
    try:
        subprocess.run([str(command), "--version"], user=NOBODY, capture_output=True, check=True, cwd="/")
    except (PermissionError, subprocess.CalledProcessError):
        return None
    return NOBODY


@pytest.fixture
def folder(tmp_path: Path, user: int | None) -> Path:
    """Return an empty folder of the user that `typed` runs as."""
    if user is not None:
        for path in (tmp_path, *tmp_path.parents):
            if path == Path("/tmp"):
                break
            path.chmod(path.stat().st_mode | 0o055)
        os.chown(tmp_path, user, user)
    return tmp_path


def typed(command: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Return what the command says in a folder, run as the folder's user."""
    owner = folder.stat().st_uid
    user = owner if owner != os.geteuid() else None
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "RDMA_IMAGES_STATE": str(folder / "state")}
    return subprocess.run(
        [str(command), *words], cwd=folder, env=environ, user=user, capture_output=True, text=True, check=False
    )


def command_output(command: Path, folder: Path, *words: str) -> str:
    completed = typed(command, folder, *words)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def write_file(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def files(folder: Path) -> Sequence[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_of_ones_own_is_planned_and_rendered(command: Path, folder: Path) -> None:
    assert "next: rdma-images build" in command_output(command, folder, "init")
    schemas = [f"schemas/{name}.json" for name in ("jobs", "matrix", "mirrors", "policy", "registries")]
    written = [".github/requirements.txt", ".github/workflows/images.yml", ".gitignore", "matrix.yaml"]
    assert files(folder) == [*written, *schemas]
    workflow = yaml.safe_load((folder / ".github/workflows/images.yml").read_text(encoding="utf-8"))
    runs = [step["run"] for step in workflow["jobs"]["build"]["steps"] if "run" in step]
    wheel = "./rdma_images-0.1.0-py3-none-any.whl"  # of what is installed here
    install = f"pip install --require-hashes -r .github/requirements.txt && pip install --no-deps {wheel}"
    assert runs[:3] == [install, "rdma-images plan", "rdma-images build"]
    assert "my-training" in command_output(command, folder, "plan")
    dockerfile_lines = command_output(command, folder, "render").splitlines()
    assert all(Path(line).is_relative_to(folder / "build") for line in dockerfile_lines)
    again = typed(command, folder, "init")
    assert again.returncode == 2
    assert "already has matrix.yaml" in again.stderr


@pytest.fixture
def origin(command: Path) -> Iterator[Path]:
    """Yield the file in which pip wrote where the tool was installed from (PEP 610); its content comes back."""
    (path,) = command.parent.parent.glob("lib/python*/site-packages/rdma_images-*.dist-info/direct_url.json")
    before = path.read_text(encoding="utf-8")
    yield path
    path.write_text(before, encoding="utf-8")


@pytest.mark.parametrize(
    ("direct_url", "line", "note"),
    [
        ({}, "rdma-images==0.1.0", "the workflow installs rdma-images==0.1.0, as installed here"),
        (
            {"url": "https://git.example/x/rdma-images.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
            f"'rdma-images @ git+https://git.example/x/rdma-images.git@{'0' * 40}'",
            f"the workflow installs git+https://git.example/x/rdma-images.git@{'0' * 40}, as installed here",
        ),
        (
            {"url": "https://files.example/rdma_images-0.1.0-py3-none-any.whl", "archive_info": {}},
            "'rdma-images @ https://files.example/rdma_images-0.1.0-py3-none-any.whl'",
            "the workflow installs https://files.example/rdma_images-0.1.0-py3-none-any.whl, as installed here",
        ),
        (
            {"url": "file:///home/me/rdma-images", "dir_info": {}},
            "./rdma_images-0.1.0-py3-none-any.whl",
            "pip wheel --no-deps --wheel-dir {folder} /home/me/rdma-images",
        ),
    ],
)
def test_the_workflow_installs_what_is_installed_here(
    command: Path, folder: Path, origin: Path, direct_url: dict[str, object], line: str, note: str
) -> None:
    origin.write_text(json.dumps(direct_url), encoding="utf-8")
    init_output = command_output(command, folder, "init")
    assert f"pip install --no-deps {line}\n" in (folder / ".github/workflows/images.yml").read_text(encoding="utf-8")
    assert note.format(folder=folder) in init_output
    assert ("the workflow cannot install" in init_output) == line.startswith("./")


def test_a_home_that_is_no_folder_is_a_sentence(command: Path, folder: Path) -> None:
    environment = {**os.environ, "HOME": "/dev/null"}
    completed = subprocess.run([command, "--list"], cwd=folder, env=environment, capture_output=True, text=True)
    assert completed.returncode == 2
    assert completed.stderr.startswith("/dev/null/.invoke.")
    assert "set HOME to a folder" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_a_removed_current_folder_is_refused(command: Path) -> None:
    words = ["sh", "-c", 'cd "$(mktemp -d)" && rmdir "$PWD" && exec "$0" plan', str(command)]
    completed = subprocess.run(words, capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (2, "the current folder was removed\nchange to another one\n")


def test_own_templates_facts_and_subfolders_extend_what_the_wheel_brings(command: Path, folder: Path) -> None:
    command_output(command, folder, "init")
    stages = '"base", "python", "efa-installer", "aws-ofi-nccl", "wheels", "hello", "environment"'
    write_file(folder, "dockerfiles/targets/my-training.j2", f"{{{{ stages({stages}) }}}}\n")
    write_file(folder, "dockerfiles/stages/hello.j2", "FROM {{ previous }} AS {{ stage }}\nRUN echo hello > /hello\n")
    write_file(folder, "facts/efa-installer.yaml", "releases: {99.0.0: {nonsense: 1}}\n")
    matrix = (folder / "matrix.yaml").read_text(encoding="utf-8")
    write_file(folder, "matrix.yaml", matrix.replace("template: efa-pytorch ", "# "))
    (folder / "notes").mkdir()
    os.chown(folder / "notes", folder.stat().st_uid, -1)
    refused = typed(command, folder / "notes", "plan")
    # A mistake in an own file is told with that file and line; the wheel's rows are not repeated in it.
    assert f"{folder}/facts/efa-installer.yaml:1: unknown key 'nonsense'" in refused.stderr
    (folder / "facts/efa-installer.yaml").unlink()
    dockerfile = command_output(command, folder / "notes", "render").splitlines()[0]
    assert "RUN echo hello > /hello" in Path(dockerfile).read_text(encoding="utf-8")
    assert Path(dockerfile).is_relative_to(folder / "build")


def test_a_plan_for_programs_has_the_users_own_templates_and_every_problem(command: Path, folder: Path) -> None:
    command_output(command, folder, "init")
    template = "jobs/slurm/job.sbatch.j2"
    write_file(folder, template, "#!/bin/bash\n")
    assert f"own, in place of the tool's: {template}" in command_output(command, folder, "plan")
    planned = json.loads(command_output(command, folder, "plan", "--json"))
    assert (planned["overrides"], planned["problems"]) == ([template], [])
    matrix = (folder / "matrix.yaml").read_text(encoding="utf-8")
    write_file(folder, "matrix.yaml", matrix.replace("template: efa-pytorch ", "template: efa-pytorhc "))
    completed = typed(command, folder, "plan", "--json")
    (problem,) = json.loads(completed.stdout)["problems"]
    assert problem.startswith(f"{folder}/dockerfiles/targets/efa-pytorhc.j2: no such template, for target my-training")
    assert (completed.returncode, completed.stderr) == (2, "")


def test_a_release_of_ones_own_facts_is_known(command: Path, folder: Path) -> None:
    command_output(command, folder, "init")
    table = yaml.safe_load((paths.FACTS / "efa-installer.yaml").read_text(encoding="utf-8"))["releases"]
    newest = str(next(iter(table)))
    row = {**table[next(iter(table))]}
    write_file(folder, "facts/efa-installer.yaml", yaml.safe_dump({"releases": {"99.0.0": row}}))
    assert newest in command_output(command, folder, "plan", "--set", f"efa-installer={newest}")
    assert "99.0.0" in typed(command, folder, "plan", "--set", "efa-installer=99.0.0").stdout


def test_a_log_needs_no_folder(command: Path, folder: Path) -> None:
    log = str(shutil.copy(LOG, folder))
    completed = typed(command, folder, "verdict", log)
    assert "Socket" in completed.stdout
    assert "Traceback" not in completed.stderr
    assert files(folder) == [LOG.name]


def test_without_a_matrix_the_message_says_how_to_get_one(command: Path, folder: Path) -> None:
    completed = typed(command, folder, "plan")
    assert completed.returncode == 2
    assert completed.stderr.splitlines()[-1].endswith("start one with `rdma-images init`")


def test_help_and_completion_name_the_command(command: Path, folder: Path) -> None:
    assert "\n  rdma-images build --target" in command_output(command, folder, "--help", "build")
    assert "invoke build" not in command_output(command, folder, "--help", "build")
    assert "\n  rdma-images validate --image" in command_output(command, folder, "--help", "validate")
    assert "complete" in command_output(command, folder, "--print-completion-script", "bash")


def test_the_tasks_are_those_of_a_checkout(command: Path, folder: Path) -> None:
    import tasks

    listed = command_output(command, folder, "--complete", "--", "rdma-images plan").split()
    assert {name for name in listed if not name.startswith("-")} ^ set(tasks.ns.task_names) <= {"init", "test", "job"}
