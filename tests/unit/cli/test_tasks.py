"""What a user types: exit codes, sentences, JSON; never a traceback."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tasks
from rdma_images.cli.parsing import TaskParser
from rdma_images.cli.task import Task
from rdma_images.core import paths
from rdma_images.core.errors import suggestion
from rdma_images.engine import discovery
from rdma_images.jobs.write import jobs_file
from tests.support import task_server

Invoke = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def invoke() -> Iterator[Invoke]:
    with task_server.serving(paths.PROJECT, os.environ) as server:
        yield server.run


def test_answers_for_programs(invoke: Invoke) -> None:
    answer, (described,), status = (
        json.loads(invoke(*words.split(), "--json").stdout)
        for words in ("plan -t efa-pytorch", "describe -t efa-pytorch", "engine.status")
    )
    assert described.pop("docker_run")[:2] == ["docker", "run"]
    assert answer["images"] == [described]
    assert "problem" in status


def test_a_refusal_ends_with_two_and_says_why(invoke: Invoke) -> None:
    completed = invoke("plan", "--target", "efa-pytorch", "--set", "nccl=2.19.3")
    assert completed.returncode == 2
    for word in ("nccl 2.19.3, efa-installer 1.50.0\n", "nccl-pin", "2.30.7", "source:", "nearest that works"):
        assert word in completed.stdout
    completed = invoke("build", "--target", "efa-pytorch", "--set", "nccl=2.19.3", "--rehearse")
    assert (completed.returncode, completed.stdout) == (2, "")
    assert "nccl-pin" in completed.stderr


def test_what_lacks_a_lock_is_locked_by_the_same_choice(invoke: Invoke) -> None:
    completed = invoke("lock", "--target", "erdma-nccl-tests", "--set", "nccl-tests=2.20.0", "--check")
    assert "run `invoke lock --target erdma-nccl-tests --set nccl-tests=2.20.0` where" in completed.stderr


def test_a_verdict_reads_standard_input(invoke: Invoke) -> None:
    completed = invoke("verdict", "-", stdin="nothing of NCCL\n")
    assert completed.returncode == 3
    assert completed.stdout.startswith("unknown: no line of NCCL's is in the log")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ci.matrix", "--runner", "x"], "--runner x: not of the form platform=label\nwrite --runner platform=label"),
        (["plan", "--target", "efa-pytorc"], "efa-pytorc: no such target\ndid you mean efa-pytorch"),
        (["plan", "--set", "base=debian14"], "base debian14: no such value"),
        (["plan", "--set", "pytorch=9.9"], "pytorch 9.9: no such value\ndid you mean 2.15.0 or 2.14.1 or 2.14.0?\n"),
        (["plan", "--set", "pytorch"], "--set pytorch: not of the form axis=value\nwrite --set axis=value"),
        (["plan", "--set", "nccl=1", "--set", "nccl=2"], "--set gives nccl two values, 1 and 2\nremove one of them\n"),
        (["plan", "--set", "colour=red"], "colour: no such axis\n"),
        (["build", "--compression", "lzma"], "--compression lzma: unknown\nchoose from zstd, gzip"),
        (["validate", "--tier", "statik"], "--tier statik: no such tier\ndid you mean static"),
        (["validate", "--target", "efa-pytorch", "--fabric", "foo"], "--fabric foo: no such fabric"),
        (["validate", "--image", "x", "--instance", "p5"], "unknown instance type 'p5'\ndid you mean p5.48xlarge"),
        (["validate", "--image", "x", "--target", "efa-pytorch"], "--image and --target do not go together\n"),
        (["plan", "--target"], "--target: needs a value, and has none\ninvoke --help plan shows its options"),
        (["plan", "--target", "--all"], "--target: needs a value, and has none\n"),
        (["plan", "--target", "efa-pytorch", "--target"], "--target: needs a value, and has none\n"),
        (["biuld"], "biuld: no such task\ndid you mean build?\n"),
        (["xyzzy"], "xyzzy: no such task\ninvoke --list shows all tasks\n"),
        (["init"], "init: no such task of a clone\ninstall the wheel: its command is `rdma-images init`\n"),
        (["cluster", "--instance", "p5.48xlarge"], "cluster: --launcher LAUNCHER and --region REGION and --zone "),
        (["plan", "--targte", "efa-pytorch"], "--targte: no such option of plan\ndid you mean --target or "),
        (["plan", "--json=x"], "--json=x: no such option of plan\ndid you mean --json or "),
        (["--lits"], "--lits: no such option of invoke\ndid you mean --list or "),
        (["--targte", "x"], "--targte: no such option of invoke\ninvoke --help shows its options\n"),
        (["plan", "efa-pytorch"], "efa-pytorch: no such task\nan option comes before its value: invoke plan --target"),
        (["verdict", "x", "--nodes", "two"], "--nodes two: not a whole number from 1 on\nwrite digits, as in"),
        (["verdict", "x", "--nodes", "0"], "--nodes 0: not a whole number from 1 on\n"),
        (["job", "--nodes=-1"], "--nodes -1: not a whole number from 1 on\n"),
        (["verdict", "/no/such/log"], "/no/such/log: no such log"),
        (["job", "--instance", "p5", "--launcher", "mpijobs"], "--launcher mpijobs: no such launcher\ndid you mean "),
        (["job.compare", "--target", "efa-pytorch"], "--target: no such option of job.compare\n"),
        (["job", "--name", "a", "--name=b"], "--name: is given twice\nleave one out"),
        (["plan", "--target", "efa-pytorch", "--onto", ""], "--onto: its value is empty\ngive one, or leave"),
        (["plan", "--target", "a\nRUN touch /x"], "--target: the character U+000A is in it"),
        (["verdict", "a\nb"], "--logs: the character U+000A is in it"),
        (["build", "-f", "Dockerfile"], "-f: no such option of build\ninvoke --help build shows its options"),
        (["-f", "settings.yaml", "plan"], "--config: this option of invoke's is not supported here\nleave it out\n"),
        (["--dry", "plan"], "--dry: this option of invoke's is not supported here\nleave it out\n"),
        (["--list", "--list-depth", "1"], "--list-depth: this option of invoke's is not supported here\n"),
        (["plan", "-a", "--", "a", "b"], "plan: takes no words after --, and got `a b`\nleave them out\n"),
        (["job", "--target", "x", "plan", "--", "a"], "plan: takes no words after --, and got `a`\n"),
        (["verdict"], "verdict: LOG... must be given\ninvoke --help verdict shows its options\n"),
        (["verify", "registry.example/x"], "registry.example/x: no such task\nan option comes before its value: "),
        (["plan", "-T", "x"], "-T: no such option of plan\n"),
        (["--help", "biuld"], "biuld: no such task\ndid you mean build?"),
        (["--list", "engin"], "engin: no such group of tasks\ndid you mean engine?"),
        (
            ["validate", "--host", "local://", "-i", "a", "-i", "b"],
            "--host local:// measures one machine, and 2 images are chosen\nchoose one",
        ),
        (["validate", "--host", "two"], "validating two\n'two' names no host that can be measured\n"),
    ],
)
def test_what_is_typed_wrongly_is_answered_with_what_was_meant(invoke: Invoke, words: list[str], sentence: str) -> None:
    completed = invoke(*words)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr.startswith(sentence)


def test_the_list_has_every_task_of_users_once_and_none_of_those_who_change_the_project(invoke: Invoke) -> None:
    output = invoke("--list").stdout
    assert output.startswith("Images:\n\n  plan ")
    listed = [line.split()[0] for line in output.splitlines() if line.startswith("  ")]
    names = ["job" if name == "job.job" else name for name, _ in all_tasks()]
    assert sorted(listed) == sorted(name for name in names if not name.startswith(("test", "ci.", "facts.", "matrix.")))
    assert listed.index("plan") < listed.index("publish") < listed.index("job") < listed.index("engine.up")


def test_there_are_few_tasks_with_few_options() -> None:
    tasks = dict(all_tasks())
    assert len(tasks) <= 28
    assert not [name for name, task in tasks.items() if len(task.get_arguments()) > 15]


@pytest.mark.parametrize("words", [[], ["--list"], ["--list", "job"], ["--help", "build"], ["build", "-h"]])
def test_an_answer_of_invoke_that_cannot_be_written_is_a_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "invoke", *words]
        completed = subprocess.run(command, cwd=paths.PROJECT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert completed.returncode == 1
    assert "No space left on device\nfree disk space" in completed.stderr


def test_a_short_option_is_a_letter_and_means_one_thing_in_all_tasks() -> None:
    meanings: dict[str, set[str]] = {}
    for _, task in all_tasks():
        for argument in task.get_arguments():
            for short in argument.names[1:]:
                meanings.setdefault(short, set()).add(argument.names[0])
    assert {short: names for short, names in meanings.items() if len(names) > 1} == {}
    assert meanings["t"] == {"target"}
    assert all(len(short) == 1 and short.isalpha() for short in meanings)
    assert "h" not in meanings  # asks for help


def test_several_values_reach_a_task_and_several_tasks_a_line() -> None:
    parser = TaskParser(contexts=tasks.ns.to_contexts())
    words = ["verdict", "a.log", "--nodes", "2", "b.log", "--json"]
    assert parser.parse_argv(words)[0].as_kwargs["logs"] == ["a.log", "b.log"]
    words = ["lock", "--check", "plan", "-t", "a", "--target=b", "-s", "nccl=1"]
    lock, plan = parser.parse_argv(words)
    assert lock.as_kwargs["check"]
    assert (plan.as_kwargs["target"], plan.as_kwargs["set"], plan.as_kwargs["all"]) == (["a", "b"], ["nccl=1"], False)


def all_tasks() -> list[tuple[str, Task]]:
    return [(name, tasks.ns[name]) for name in tasks.ns.task_names]


def test_every_task_has_a_summary_of_one_line_and_an_example() -> None:
    for name, task in all_tasks():
        assert task.__doc__, name
        summary = task.__doc__.splitlines()[0]
        assert summary.endswith("."), name
        assert len(summary) <= 62, f"{name}: `invoke --list` folds it"
        typed = "job" if name == "job.job" else name  # its group's own name stands for it
        assert {example.split()[0] for example in task.examples} == {typed}


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("--list job", ["  job  ", "  job.run "]),
        ("", ["Usage: invoke TASK [options]", "  -l, --list [GROUP]", "  plan "]),
        ("job.check --json --help", ["Usage: invoke job.check PATH... [options]", "  invoke job.check -"]),
        ("verdict -h", ["Usage: invoke verdict LOG... [options]", "  LOG... ", "  --job FILE ", "  --nodes N "]),
        ("run -h", ["Usage: invoke run [options] [-- COMMAND]", "  --env NAME[=VALUE] ", "  -s, --set AXIS=VALUE "]),
        ("verify -h", ["Usage: invoke verify --image HOST/NAME:TAG [options]"]),
        ("report -h", ["Usage: invoke report", "Examples:", "  invoke report"]),
    ],
)
def test_a_help_shows_what_to_type(invoke: Invoke, words: str, rows: list[str]) -> None:
    shown = invoke(*words.split()).stdout
    assert all(f"\n{row}" in f"\n{shown}" for row in rows), shown
    assert not [name for name in ("--dry", "STRING", "--no-dedupe") if name in shown]
    assert max(map(len, shown.partition("Examples:")[0].splitlines())) <= 80


def test_the_help_of_a_job_lists_the_fields_without_an_option(invoke: Invoke) -> None:
    listed = invoke("--help", "job").stdout.partition("Fields of --field:\n")[2].splitlines()
    options = {*tasks.ns["job"].argspec(tasks.ns["job"].body).parameters, "mounts", "command", "roles"}
    named = {line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "}
    assert named == {name.replace("_", "-") for name in jobs_file.JobEntry.model_fields if name not in options}


@pytest.mark.parametrize("words", ["plan", "plan --json", "describe"])
@pytest.mark.parametrize(
    ("redirection", "code", "sentence"), [(">&-", 0, ""), (">/dev/full", 1, "No space left on device\nfree disk space")]
)
def test_an_answer_that_cannot_be_written(words: str, redirection: str, code: int, sentence: str) -> None:
    command = f"{sys.executable} -m invoke {words} --target efa-pytorch {redirection}"
    completed = subprocess.run(["sh", "-c", command], cwd=paths.PROJECT, stderr=subprocess.PIPE, text=True)
    assert completed.returncode == code
    assert sentence in completed.stderr
    assert "Traceback" not in completed.stderr
    assert "Exception ignored" not in completed.stderr


@pytest.mark.parametrize(("setting", "writes"), [("", True), ("1", False)])
def test_compiled_modules_are_kept_as_python_is_told(setting: str, writes: bool, tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": setting}
    command = [sys.executable, "-m", "invoke", "plan", "--target", "efa-pytorch"]
    subprocess.run(command, cwd=paths.PROJECT, env=environ, capture_output=True, check=True)
    assert bool(list(tmp_path.rglob("rdma_images/plan/plan_table.*.pyc"))) == writes


def test_the_list_of_tasks_and_completion_import_no_facts() -> None:
    script = "import sys, tasks; print(*sorted(sys.modules))"
    completed = subprocess.run(
        [sys.executable, "-c", script], cwd=paths.PROJECT, capture_output=True, text=True, check=True
    )
    assert {"pydantic", "rich", "filelock", "urllib.request", "rdma_images.facts"}.isdisjoint(completed.stdout.split())


def test_a_plan_imports_only_what_it_needs(tmp_path: Path) -> None:
    script = (
        "import sys; from tasks import ns; ns['plan'].body(all=True, json=True); "
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    environ = {**os.environ, "RDMA_IMAGES_STATE": str(tmp_path)}
    command = [sys.executable, "-c", script]
    completed = subprocess.run(command, cwd=paths.PROJECT, env=environ, capture_output=True, text=True, check=True)
    unneeded = {"rich", "docker", "requests", "jinja2", "zstandard", "rdma_images.inspection.measurements"}
    unneeded |= {"filelock", "urllib.request"}
    assert unneeded.isdisjoint(completed.stderr.split())


@pytest.mark.parametrize(
    ("word", "words", "sentence"),
    [
        ("2.10", ["2.1.0", "2.10.0", "2.10.1", "2.15.0"], "did you mean 2.10.1 or 2.10.0?"),
        ("1.5", ["1.5.10", "1.50.0"], "did you mean 1.5.10?"),
        pytest.param("1.5", ["1.4.5", "1.50.0"], "did you mean 1.50.0?", id="YAML reads 1.50 as this number"),
        ("2.10", ["2.18.3", "pytorch", "2.20.5"], "did you mean 2.18.3 or 2.20.5?"),
        ("2.20.3", ["2.18.3", "pytorch", "2.20.5"], "did you mean 2.20.5 or 2.18.3?"),
        ("9", ["2.18.3", "pytorch", "2.20.5"], "did you mean 2.20.5 or 2.18.3?"),
        ("nothing", ["2.18.3", "pytorch"], "choose from 2.18.3, pytorch"),
        ("²", ["2.18.3", "pytorch"], "choose from 2.18.3, pytorch"),
        pytest.param(
            "9" * 5000, ["2.18.3", "pytorch"], "choose from 2.18.3, pytorch", id="more digits than Python reads"
        ),
    ],
)
def test_the_nearest_words_are_suggested_or_else_all(word: str, words: list[str], sentence: str) -> None:
    assert suggestion(word, words) == sentence


def test_the_page_of_a_verdict_is_named_beside_the_answer(invoke: Invoke, tmp_path: Path) -> None:
    log, page = "tests/data/results/2.19.6-one-node.txt", tmp_path / "new" / "page.html"
    completed = invoke("verdict", log, "--html", str(page), "--json")
    assert (completed.returncode, completed.stderr, page.is_file()) == (0, f"wrote {page}\n", True)
    assert completed.stdout.startswith("{")


def test_ctrl_c_ends_a_task_with_130(tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)
    command = [sys.executable, "-m", "invoke", "verdict", str(log)]
    with (
        subprocess.Popen(command, cwd=paths.PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        log.open("w"),  # once the task reads it
    ):
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in complaints


def test_kill_ends_a_task_in_order(tmp_path: Path) -> None:
    script = """
import tempfile, time
from rdma_images.cli.task import task
@task("work")
def work():
    with tempfile.TemporaryDirectory(dir=".") as name:
        print(name, flush=True)
        time.sleep(60)
"""
    (tmp_path / "tasks.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "invoke", "work"]
    environment = {**os.environ, "PYTHONPATH": str(paths.PROJECT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        folder = tmp_path / process.stdout.readline().strip()
        assert folder.is_dir()
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (143, "")
    assert not folder.exists()


def test_an_output_that_takes_ascii_alone() -> None:
    command = [sys.executable, "-m", "invoke", "--help", "plan"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    completed = subprocess.run(command, cwd=paths.PROJECT, env=environment, capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "?" in completed.stdout


@pytest.mark.skipif(discovery.DEFAULT_SOCKET.exists(), reason="the images of this machine's Docker would be removed")
def test_pruning_without_an_engine_fetches_none() -> None:
    with tempfile.TemporaryDirectory() as state:  # a short path: the engine's sockets are in it
        environ = {**os.environ, "RDMA_IMAGES_STATE": state, "DOCKER_CONTEXT": "default"}
        environ.pop("DOCKER_HOST", None)
        words = [sys.executable, "-m", "invoke", "engine.prune"]
        pruned = subprocess.run(words, cwd=paths.PROJECT, env=environ, capture_output=True, text=True, timeout=60)
        assert (pruned.stdout, pruned.stderr) == ("nothing to remove: there is no engine yet\n", "")
        assert not (Path(state) / "engine").exists()
