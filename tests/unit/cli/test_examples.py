"""The examples of every `--help`: all are parsed by the program's own parser, and those that need no more run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tasks
from rdma_images import facts
from rdma_images.cli.parsing import TaskParser
from rdma_images.core import paths
from rdma_images.plan import matrix
from tests.support import checkout, task_server

EXAMPLES = sorted({example for name in tasks.ns.task_names for example in tasks.ns[name].examples})
# Examples that need what a test here has not, and the tests of their tasks have: every other example runs.
NEEDS_MORE = re.compile(
    r"(?:build|run|shell|validate|engine\.(?:up|down|prune)) |"  # an engine
    r"(?:lock|sources|facts\.update) |plan .*--(?:onto|solve) |ci\.locked |"  # indexes and archives
    r"(?:publish|verify|ci\.join) |scan .*--(?:image|published) |"  # a registry
    r"scan --target \S+ $|job\.run |"  # a scanner, a cluster
    r"test "  # these tests
)
# What a job's log is read from, in place of kubectl.
KUBECTL = "#!/bin/sh\ncat train.log\n"


@pytest.fixture(scope="module", name="workplace")
def _workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout, a repository with a remote, that has the files that examples name."""
    folder = checkout.copied(tmp_path_factory.mktemp("examples") / "rdma-images")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, "commit", "--quiet", "--allow-empty", "--message=a"], cwd=folder, check=True)
    subprocess.run(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=folder, check=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").write_text(KUBECTL)
    (folder / "bin" / "kubectl").chmod(0o755)
    command = [sys.executable, "-m", "tests.support.example_files"]
    subprocess.run(command, cwd=folder, env=_environment(folder), check=True)
    return folder


@pytest.fixture(scope="module", name="server")
def _server(workplace: Path) -> Iterator[task_server.TaskServer]:
    with task_server.serving(workplace, _environment(workplace)) as server:
        yield server


def _environment(folder: Path) -> dict[str, str]:
    state = {"RDMA_IMAGES_STATE": str(folder.parent / "state")}
    return {"PATH": f"{folder}/bin:/usr/bin:/bin", "PYTHONPATH": str(folder), "HOME": str(folder.parent), **state}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_taken_by_the_parser_and_names_what_exists(example: str) -> None:
    words = shlex.split(example)
    words = words[: words.index("--")] if "--" in words else words
    (context,) = TaskParser(contexts=tasks.ns.to_contexts()).parse_argv(words)
    values = {name: argument.value for name, argument in context.args.items() if argument.value}
    target = values.get("target") or ()
    targets = {target} if isinstance(target, str) else set(target)
    assert targets <= matrix.load().targets.keys()
    all_facts = facts.load()
    if launcher := values.get("launcher"):
        assert launcher in {*all_facts.launchers.launchers, *all_facts.launchers.clusters}
    if instance := values.get("instance"):
        all_facts.instances.find(str(instance))


@pytest.mark.parametrize("example", [example for example in EXAMPLES if not NEEDS_MORE.match(f"{example} ")])
def test_an_example_runs(example: str, workplace: Path, server: task_server.TaskServer) -> None:
    words = shlex.split(example)
    completed = server.run(*words, stdin=(workplace / "job.yaml").read_text(encoding="utf-8"))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout


def test_the_commands_of_the_workflow_that_init_writes_are_taken_by_the_parser() -> None:
    workflow = (paths.PROJECT / "rdma_images/cli/start/workflow.yaml").read_text(encoding="utf-8")
    commands = re.findall(r"rdma-images ((?:plan|build|scan)[^>\n]*)", workflow)
    assert {command.split()[0] for command in commands} == {"plan", "build", "scan"}
    for command in commands:
        TaskParser(contexts=tasks.ns.to_contexts()).parse_argv(shlex.split(command))


README_PLANS = re.findall(
    r"^\$ invoke (plan .+)\n((?:.+\n)+?)```", (paths.PROJECT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize(("words", "expected_output"), README_PLANS, ids=[words for words, _ in README_PLANS])
def test_the_readme_shows_what_plan_prints(words: str, expected_output: str) -> None:
    """Lines may be cut, with an ellipsis, and left out between those that are shown."""
    command = [sys.executable, "-m", "invoke", *words.split()]
    completed = subprocess.run(command, cwd=paths.PROJECT, capture_output=True, text=True)
    printed = iter((completed.stdout + completed.stderr).splitlines())
    for line in expected_output.splitlines():
        assert any(text.startswith(line.removesuffix("…")) for text in printed), line
