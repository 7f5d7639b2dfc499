"""The workflows fit GitHub's schema, name every action by commit, and ask for no right that they do not need."""

import re
import subprocess
import sys

import pytest
import yaml

from rdma_images.paths import PROJECT

FOLDER = PROJECT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$")
# Every right that a job may have beside reading the sources, and what it is for.
RIGHTS = {
    ("images.yml", "try"): {"contents": "read", "packages": "read"},
    ("images.yml", "ship"): {"contents": "read", "packages": "write", "id-token": "write"},
    ("images.yml", "join"): {"contents": "read", "id-token": "write"},
}


def read(path):
    return yaml.safe_load(path.read_text())


def jobs(path):
    return read(path)["jobs"].items()


def test_there_are_workflows():
    assert {path.name for path in WORKFLOWS} == {"image.yml", "images.yml", "tests.yml"}


def test_githubs_schema_accepts_them():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_check_can_fail(tmp_path):
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-at:"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(broken)]
    assert subprocess.run(command, capture_output=True).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_their_version(path):
    for line in path.read_text().splitlines():
        if "uses:" in line and "uses: ./" not in line:
            assert PINNED.search(line.strip().removeprefix("- ")), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_rights_are_the_least(path):
    body = read(path)
    called = "workflow_call" in body[True]  # YAML 1.1 reads the key `on` as true
    if not called:
        assert body["permissions"] == {"contents": "read"}
    for name, job in jobs(path):
        assert job.get("permissions", {"contents": "read"}) == RIGHTS.get((path.name, name), {"contents": "read"})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_checkouts_keep_no_token_and_every_job_has_a_limit(path):
    for name, job in jobs(path):
        assert "uses" in job or job.get("timeout-minutes"), name
        for step in job.get("steps", ()):
            if "actions/checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_expression_is_pasted_into_a_shell(path):
    for _, job in jobs(path):
        for step in job.get("steps", ()):
            assert "${{" not in step.get("run", ""), step["run"]


def test_pull_requests_publish_nothing():
    found = dict(jobs(FOLDER / "images.yml"))
    assert found["try"]["with"]["publish"] is False
    assert "== 'pull_request'" in found["try"]["if"]
    assert "!= 'pull_request'" in found["ship"]["if"]


def test_the_tasks_they_call_exist():
    listed = subprocess.run(
        [sys.executable, "-m", "invoke", "--list"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    known = set(re.findall(r"^  (\S+)", listed.stdout, re.MULTILINE))
    for path in WORKFLOWS:
        for called in re.findall(r"\binvoke ([a-z][\w.-]*)", "\n".join(_shell(path))):
            assert called in known, f"{path.name} calls invoke {called}"


def _shell(path):
    return [step["run"] for _, job in jobs(path) for step in job.get("steps", ()) if "run" in step]
