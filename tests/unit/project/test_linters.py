"""ShellCheck and zizmor find nothing in the tree's scripts and workflows, and in the workflow that `init` writes."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rdma_images.core.paths import PROJECT

WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
STARTED = PROJECT / "rdma_images" / "cli" / "start" / "workflow.yaml"
SHELL = re.compile(rb"#!\S*[/ ](?:ba|da)?sh\b")


def shellcheck(*arguments: str | Path) -> str:
    """Return what ShellCheck says, with the rules that the project leaves out."""
    command = ["shellcheck", f"--rcfile={PROJECT}/.shellcheckrc", "--format=gcc", *arguments]
    return subprocess.run(command, capture_output=True, text=True).stdout


def zizmor(*workflows: Path) -> subprocess.CompletedProcess[str]:
    command = ["zizmor", "--offline", "--no-progress", "--quiet", f"--config={PROJECT}/.github/zizmor.yml"]
    return subprocess.run([*command, *workflows], capture_output=True, text=True)


def test_scripts_of_the_tree_are_good_shell() -> None:
    names = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    paths = [PROJECT / name for name in names.splitlines() if not name.endswith(".j2")]
    scripts = [path for path in paths if path.is_file() and SHELL.match(path.read_bytes())]
    assert PROJECT / ".ci" / "run" in scripts
    assert shellcheck(*scripts) == ""


@pytest.mark.parametrize("workflow", [*WORKFLOWS, STARTED], ids=lambda path: path.name)
def test_scripts_of_workflows_are_good_shell(workflow: Path, tmp_path: Path) -> None:
    for name, job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].items():
        for number, step in enumerate(job.get("steps", ())):
            if "run" in step:
                (tmp_path / f"{name}-{number}.sh").write_text(step["run"], encoding="utf-8")
    # Arguments come as words in one variable, whose blanks part them; variables come from the workflow.
    assert shellcheck("--shell=bash", "--exclude=SC2086,SC2153", *tmp_path.iterdir()) == ""


def test_zizmor_finds_nothing(tmp_path: Path) -> None:
    started = tmp_path / ".github" / "workflows" / "images.yml"
    started.parent.mkdir(parents=True)
    started.write_bytes(STARTED.read_bytes())
    completed = zizmor(PROJECT / ".github", started)
    assert completed.returncode == 0, completed.stdout


def test_zizmor_can_fail(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    text = STARTED.read_text(encoding="utf-8").replace("persist-credentials: false", "persist-credentials: true")
    broken.write_text(text.replace("contents: read", "contents: write", 1), encoding="utf-8")
    assert "excessive-permissions" in zizmor(broken).stdout


def test_the_workflow_of_init_installs_what_the_tests_ran_with() -> None:
    ours, started = (
        set(re.findall(r"^([\w.-]+==\S+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        for path in (PROJECT / ".github" / "requirements.txt", STARTED.with_name("requirements.txt"))
    )
    assert started
    assert started <= ours


def test_only_the_job_that_opens_an_issue_may_write_and_it_runs_nothing_else() -> None:
    jobs = yaml.safe_load(STARTED.read_text(encoding="utf-8"))["jobs"]
    assert {name: job.get("permissions") for name, job in jobs.items()} == {"build": None, "issue": {"issues": "write"}}
    assert [step.get("uses", "").partition("@")[0] for step in jobs["issue"]["steps"]] == [
        "actions/download-artifact",
        "",
    ]
