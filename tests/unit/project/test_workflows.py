"""The workflows fit GitHub's schema.

They name every action by commit, ask for no right that they do not need, and ship from main and from tags v* alone.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rdma_images.cli.program import namespace
from rdma_images.core.paths import PROJECT

FOLDER = PROJECT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
ACTION = PROJECT / ".github" / "actions" / "docker"
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$")
# Every right that a job may have beside reading the sources, and what it is for.
RIGHTS = {
    ("images.yml", "try"): {"contents": "read", "packages": "read"},
    ("images.yml", "ship"): {"contents": "read", "packages": "write", "id-token": "write", "attestations": "write"},
    ("images.yml", "join"): {"contents": "read", "id-token": "write"},
    ("scan.yml", "scan"): {"contents": "read", "id-token": "write", "issues": "write"},
}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def jobs(path: Path) -> list[tuple[str, dict[str, Any]]]:
    return list(read(path)["jobs"].items())


@pytest.mark.parametrize(("kind", "files"), [("workflows", WORKFLOWS), ("actions", [ACTION / "action.yml"])])
def test_githubs_schema_accepts_them(kind: str, files: list[Path]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.github-{kind}"]
    completed = subprocess.run([*command, *map(str, files)], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_their_version(path: Path) -> None:
    for line in path.read_text().splitlines():
        if "uses:" in line and "uses: ./" not in line:
            assert PINNED.search(line.strip().removeprefix("- ")), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_rights_are_the_least(path: Path) -> None:
    body = read(path)
    called = "workflow_call" in body[True]  # YAML 1.1 reads the key `on` as true
    if not called:
        assert body["permissions"] == {"contents": "read"}
    for name, job in jobs(path):
        assert job.get("permissions", {"contents": "read"}) == RIGHTS.get((path.name, name), {"contents": "read"})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_checkouts_keep_no_token_and_every_job_has_a_limit(path: Path) -> None:
    for name, job in jobs(path):
        assert "uses" in job or job.get("timeout-minutes"), name
        for step in job.get("steps", ()):
            if "actions/checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_expression_is_pasted_into_a_shell(path: Path) -> None:
    for _, job in jobs(path):
        for step in job.get("steps", ()):
            assert "${{" not in step.get("run", ""), step["run"]


def evaluate(text: str, **values: str) -> bool | str:
    """Return one of GitHub's expressions, with the values of what it names.

    The small part of the language that is used.
    """
    python = text.strip().removeprefix("${{").removesuffix("}}").replace("&&", " and ").replace("||", " or ")
    python = re.sub(r"!(?!=)", " not ", python)
    names = {f"v{number}": values[name] for number, name in enumerate(values)}
    for number, name in enumerate(values):
        python = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", f"v{number}", python)
    result: bool | str = eval(python.strip(), {"startsWith": str.startswith}, names)
    return result


def workflow_run(event: str, ref: str) -> dict[str, str]:
    """Return what the expressions of images.yml see of a run, on a repository that publishes."""
    return {
        "github.event_name": event,
        "github.ref": ref,
        "github.run_id": f"run of {ref}",
        "needs.plan.outputs.any": "true",
        "vars.REGISTRIES": "registries: {}",
    }


SHIPS = [
    ("push", "refs/heads/main"),
    ("schedule", "refs/heads/main"),
    ("workflow_dispatch", "refs/heads/main"),
    ("push", "refs/tags/v1.0"),
    ("workflow_dispatch", "refs/tags/v1.0"),
]
TRIES = [
    ("pull_request", "refs/pull/7/merge"),
    ("workflow_dispatch", "refs/heads/topic"),
    ("workflow_dispatch", "refs/heads/main-2"),
    ("workflow_dispatch", "refs/tags/other"),
    ("workflow_dispatch", "refs/heads/refs/tags/v1"),
]


@pytest.mark.parametrize(
    ("event", "ref", "ships"), [(*ship, True) for ship in SHIPS] + [(*event, False) for event in TRIES]
)
def test_only_main_and_tags_ship(event: str, ref: str, ships: bool) -> None:
    job_map = dict(jobs(FOLDER / "images.yml"))
    context = workflow_run(event, ref)
    assert bool(evaluate(job_map["ship"]["if"], **context)) is ships
    assert bool(evaluate(job_map["join"]["if"], **context)) is ships
    assert bool(evaluate(job_map["try"]["if"], **context)) is not ships
    assert (job_map["ship"]["with"]["publish"], job_map["try"]["with"]["publish"]) == (True, False)


def test_one_run_ships_at_a_time_and_none_is_lost() -> None:
    concurrency = read(FOLDER / "images.yml")["concurrency"]
    (expression,) = re.findall(r"\$\{\{(.*)\}\}", concurrency["group"])
    groups = {evaluate(expression, **workflow_run(*ship)) for ship in SHIPS}
    assert groups == {"ship"}
    assert len({evaluate(expression, **workflow_run(*event)) for event in TRIES}) == len(TRIES)
    assert (concurrency["cancel-in-progress"], concurrency["queue"]) == (False, "max")


def test_secrets_go_by_name_to_what_ships() -> None:
    job_map = dict(jobs(FOLDER / "images.yml"))
    called = read(FOLDER / "image.yml")[True]["workflow_call"]["secrets"]
    assert set(job_map["ship"]["secrets"]) == set(called)
    assert "secrets" not in job_map["try"]


PUBLISHES = [("image.yml", "image", "invoke publish"), ("images.yml", "join", "invoke publish --join")]


@pytest.mark.parametrize(("file", "job", "command"), PUBLISHES)
def test_who_publishes_has_every_clouds_role_and_every_secret(file: str, job: str, command: str) -> None:
    steps = dict(jobs(FOLDER / file))[job]["steps"]
    (step,) = [entry for entry in steps if command in entry.get("run", "")]
    secrets = read(FOLDER / "image.yml")[True]["workflow_call"]["secrets"]
    assert {step["env"][name] for name in secrets} == {f"${{{{ secrets.{name} }}}}" for name in secrets}
    for action, variable in (("aws-actions/configure-aws-", "AWS_ROLE"), ("aliyun/configure-aliyun-", "ALIBABA_ROLE")):
        (cloud,) = [entry for entry in steps if entry.get("uses", "").startswith(f"{action}credentials")]
        assert f"vars.{variable} != ''" in cloud["if"]
        assert steps.index(cloud) < steps.index(step)


def test_what_is_joined_is_what_this_run_published() -> None:
    before = []
    for step in dict(jobs(FOLDER / "images.yml"))["join"]["steps"]:
        if "invoke publish --join" in step.get("run", ""):
            break
        before.append(step)
    (download,) = [step["with"] for step in before if step.get("uses", "").startswith("actions/download-artifact@")]
    (upload,) = [
        step["with"]
        for step in dict(jobs(FOLDER / "image.yml"))["image"]["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    assert (download["path"], download["merge-multiple"]) == (upload["path"], True)
    assert upload["name"].startswith(download["pattern"].removesuffix("*"))


def test_what_is_not_locked_ends_a_job_before_it_touches_docker() -> None:
    names = [step.get("run", step.get("uses", "")) for step in dict(jobs(FOLDER / "image.yml"))["image"]["steps"]]
    assert names.index("invoke lock --check $ARGUMENTS") < names.index("./.github/actions/docker")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_who_logs_in_does_it_in_the_jobs_own_configuration_and_logs_out(path: Path) -> None:
    for _, job in jobs(path):
        commands = [step.get("run", step.get("uses", "")) for step in job.get("steps", ())]
        for number, command in enumerate(commands):
            if "docker login" in command:
                assert "./.github/actions/docker" in commands[:number]
                (out,) = [step for step in job["steps"] if "docker logout" in step.get("run", "")]
                assert out["if"].startswith("always() && steps.login.outcome")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a machine whose Docker keeps images in the classic store until it is restarted.

    What it was told is in `told`.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in {
        "docker": f'cat "{tmp_path}/store"',
        "sudo": 'exec "$@"',
        "systemctl": f'echo "$@" >> "{tmp_path}/told"; echo io.containerd.snapshotter.v1 > "{tmp_path}/store"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "store").write_text("[[Backing Filesystem extfs]]\n")
    return tmp_path


def run_script(name: str, machine: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{machine / 'bin'}:{os.environ['PATH']}", "HOME": str(machine), "RUNNER_TEMP": str(machine)}
    environment |= {"DAEMON_JSON": str(machine / "daemon.json"), "GITHUB_ENV": str(machine / "env")} | environ
    return subprocess.run([ACTION / name], env=environment, capture_output=True, text=True)


needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="the scripts of the workflows need jq")


@needs_jq
@pytest.mark.parametrize("before", [None, {"features": {"buildkit": True}, "mtu": 1400}])
def test_dockers_settings_are_added_to(machine: Path, before: dict[str, Any] | None) -> None:
    if before:
        (machine / "daemon.json").write_text(json.dumps(before))
    completed = run_script("store.sh", machine, RUNNER_ENVIRONMENT="github-hosted")
    assert completed.returncode == 0, completed.stderr
    features = {**(before or {}).get("features", {}), "containerd-snapshotter": True}
    assert json.loads((machine / "daemon.json").read_text()) == {**(before or {}), "features": features}
    assert (machine / "told").read_text() == "restart docker\n"


def test_docker_that_has_the_store_is_left_alone(machine: Path) -> None:
    (machine / "store").write_text("[[driver-type io.containerd.snapshotter.v1]]\n")
    assert run_script("store.sh", machine).returncode == 0
    assert not (machine / "daemon.json").exists()
    assert not (machine / "told").exists()


@pytest.mark.parametrize("where", [{"RUNNER_ENVIRONMENT": "self-hosted"}, {}])
def test_somebodys_own_docker_is_not_restarted(machine: Path, where: dict[str, str]) -> None:
    completed = run_script("store.sh", machine, **where)
    assert completed.returncode == 1
    assert "set features.containerd-snapshotter" in completed.stderr
    assert not (machine / "daemon.json").exists()
    assert not (machine / "told").exists()


@needs_jq
def test_the_jobs_configuration_has_the_machines_settings_and_no_login(machine: Path) -> None:
    (machine / ".docker" / "cli-plugins").mkdir(parents=True)
    settings = {"currentContext": "rootless", "credHelpers": {"example.com": "ecr-login"}}
    logins = {"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}, "credsStore": "pass"}
    (machine / ".docker" / "config.json").write_text(json.dumps(settings | logins))
    completed = run_script("config.sh", machine)
    assert completed.returncode == 0, completed.stderr
    docker_config = machine / "docker"
    assert (machine / "env").read_text() == f"DOCKER_CONFIG={docker_config}\n"
    assert docker_config.stat().st_mode & 0o777 == 0o700
    assert json.loads((docker_config / "config.json").read_text()) == settings
    assert (docker_config / "cli-plugins").is_dir()


def test_the_tasks_they_call_exist() -> None:
    task_names = {name.removeprefix("job.job") or "job" for name in namespace().task_names}
    for path in WORKFLOWS:
        for called in re.findall(r"\binvoke ([a-z][\w.-]*)", "\n".join(_shell(path))):
            assert called in task_names, f"{path.name} calls invoke {called}"


def _shell(path: Path) -> list[str]:
    return [step["run"] for _, job in jobs(path) for step in job.get("steps", ()) if "run" in step]
