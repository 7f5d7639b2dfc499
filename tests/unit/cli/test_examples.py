"""The examples of every `--help`: all are parsed by the program's own parser, and those that need no engine run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from rdma_images import facts
from rdma_images.cli.parsing import SuggestingParser
from rdma_images.core import paths
from rdma_images.plan import matrix

EXAMPLES = sorted(
    {
        example
        for name in tasks.ns.task_names
        for example in re.findall(r"^Example: invoke (.+)$", tasks.ns[name].__doc__ or "", re.MULTILINE)
    }
)
LOGS = paths.PROJECT / "tests" / "data" / "nccl-logs"
# The file of an example, by the word that names it: a log in which the channels use what they should.
FILES = {"worker-0.log": LOGS / "p2p-default.log"}
# Examples that need neither an engine nor a network nor what an earlier command made.
RUNNABLE = re.compile(
    r"plan (?!.*--(?:onto|solve))|describe |job\.launchers|facts\.sources|verdict |engine\.status|"
    r"ci\.summary|ci\.measured"
)


def test_every_task_has_an_example() -> None:
    named = {example.split()[0] for example in EXAMPLES}
    assert {"job" if name == "job.job" else name for name in tasks.ns.task_names} == named


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_taken_by_the_parser_and_names_what_exists(example: str) -> None:
    words = shlex.split(example)
    words = words[: words.index("--")] if "--" in words else words
    (context,) = SuggestingParser(contexts=tasks.ns.to_contexts()).parse_argv(words)
    values = {name: argument.value for name, argument in context.args.items() if argument.value}
    target = values.get("target") or ()
    targets = {target} if isinstance(target, str) else set(target)
    assert targets <= matrix.load().targets.keys()
    all_facts = facts.load()
    if launcher := values.get("launcher"):
        assert launcher in {*all_facts.launchers.launchers, *all_facts.launchers.clusters}
    if instance := values.get("instance"):
        all_facts.instances.find(str(instance))


@pytest.mark.parametrize("example", [example for example in EXAMPLES if RUNNABLE.match(f"{example} ")])
def test_an_example_that_needs_nothing_runs(example: str, tmp_path: Path) -> None:
    words = [str(FILES.get(word, word)) for word in shlex.split(example)]
    done = subprocess.run(
        [sys.executable, "-m", "invoke", *words],
        cwd=paths.PROJECT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(paths.PROJECT), "RDMA_IMAGES_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


README_PLANS = re.findall(
    r"^\$ invoke (plan .+)\n((?:.+\n)+?)```", (paths.PROJECT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize(("words", "shown"), README_PLANS, ids=[words for words, _ in README_PLANS])
def test_the_readme_shows_what_plan_prints(words: str, shown: str) -> None:
    """Lines may be cut, with an ellipsis, and left out between those that are shown."""
    command = [sys.executable, "-m", "invoke", *words.split()]
    done = subprocess.run(command, cwd=paths.PROJECT, capture_output=True, text=True)
    printed = iter((done.stdout + done.stderr).splitlines())
    for line in shown.splitlines():
        assert any(text.startswith(line.removesuffix("…")) for text in printed), line
