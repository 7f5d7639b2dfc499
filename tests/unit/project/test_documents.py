"""What the documents name exists: files, folders, links, tasks and their options."""

import re
from pathlib import Path

import pytest
import yaml

import tasks
from rdma_images.core.paths import PROJECT

PAGES = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob(".github/*.md")]
FOLDERS = r"rdma_images|dockerfiles|facts|validators|tests|benchmarks|docs|jobs|locks|\.github"
# `facts/torch.yaml`, `tests/unit/plan/test_planner.py -k x`: a path that begins with a folder of the project.
FILE = re.compile(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]*\w)")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
TASK = re.compile(r"`(?:\w+=\S+ )*invoke ([a-z][a-z.]*)([^`\n]*)`")
OPTION = re.compile(r"(?<!\S)--([a-z][a-z-]*)")
# What a user adds in the examples, and what the tool writes.
EXAMPLES = re.compile(r"my-|hello|ucx|^locks/(bases|debian|downloads)")


def page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_exist(path: Path) -> None:
    ours = re.sub(r"\S+ @[0-9a-f]{7,40}\b", "", page(path))  # a file of another repository has its commit beside it
    named = {name.rstrip(".") for name in FILE.findall(ours)}
    missing = {name for name in named if not [*PROJECT.glob(f"{name}*"), *PROJECT.glob(f"rdma_images/{name}*")]}
    assert {name for name in missing if not EXAMPLES.search(name)} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert {link for link in LINK.findall(page(path)) if not (path.parent / link).exists()} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tasks_and_their_options_exist(path: Path) -> None:
    tasks_by_name = {**{name: tasks.ns[name] for name in tasks.ns.task_names}, "job": tasks.ns["job"]}
    for name, arguments in TASK.findall(page(path)):
        assert name.rstrip(".") in tasks_by_name, name
        options = {flag for argument in tasks_by_name[name.rstrip(".")].get_arguments() for flag in argument.names}
        used = {option.replace("-", "_") for option in OPTION.findall(arguments.partition(" -- ")[0])}
        assert used <= {option.replace("-", "_") for option in options}, (name, used)


@pytest.mark.parametrize("path", sorted((PROJECT / "docs").glob("*/*.md")), ids=lambda path: path.name)
def test_a_page_says_for_whom_it_is(path: Path) -> None:
    assert re.search(r"\b[Ff]or those wh", page(path)[:700])


@pytest.mark.parametrize("name", ["bug.yml", "fact.yml"])
def test_the_templates_of_issues_are_forms(name: str) -> None:
    form = yaml.safe_load(page(PROJECT / ".github" / "ISSUE_TEMPLATE" / name))
    assert {"name", "description", "body"} <= set(form)
    assert all(part["type"] in ("textarea", "input") and part["attributes"]["label"] for part in form["body"])
