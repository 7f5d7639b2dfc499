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
OTHERS = re.compile(r"\S+ @[0-9a-f]{7,40}\b")  # a file of another repository, with its commit
LINK = re.compile(r"\]\(([^)#:\s]*)#?([^):\s]*)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TASK = re.compile(r"`(?:\w+=\S+ )*invoke ([a-z][a-z.]*)([^`\n]*)`")
OPTION = re.compile(r"(?<!\S)--([a-z][a-z-]*)")
# What a user adds in the examples, and what the tool writes.
EXAMPLES = re.compile(r"my-|hello|ucx|^locks/(bases|debian|downloads)")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_exist(path: Path) -> None:
    named = {name.rstrip(".") for name in FILE.findall(OTHERS.sub("", path.read_text("utf-8")))}
    missing = {name for name in named if not [*PROJECT.glob(f"{name}*"), *PROJECT.glob(f"rdma_images/{name}*")]}
    assert {name for name in missing if not EXAMPLES.search(name)} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link, anchor in LINK.findall(path.read_text("utf-8")):
        linked = path.parent / link if link else path
        headings = HEADING.findall(linked.read_text("utf-8")) if anchor else []
        assert linked.exists(), link
        assert anchor in {"", *(re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in headings)}, link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tasks_and_their_options_exist(path: Path) -> None:
    tasks_by_name = {**{name: tasks.ns[name] for name in tasks.ns.task_names}, "job": tasks.ns["job"]}
    for name, arguments in TASK.findall(path.read_text("utf-8")):
        assert name.rstrip(".") in tasks_by_name, name
        options = {flag for argument in tasks_by_name[name.rstrip(".")].get_arguments() for flag in argument.names}
        used = {option.replace("-", "_") for option in OPTION.findall(arguments.partition(" -- ")[0])}
        assert used <= {option.replace("-", "_") for option in options}, (name, used)


@pytest.mark.parametrize("path", sorted((PROJECT / "docs").glob("*/*.md")), ids=lambda path: path.name)
def test_a_page_says_for_whom_it_is(path: Path) -> None:
    assert re.search(r"\b[Ff]or those wh", path.read_text("utf-8")[:700])


@pytest.mark.parametrize("name", ["bug.yml", "fact.yml"])
def test_the_templates_of_issues_are_forms(name: str) -> None:
    form = yaml.safe_load((PROJECT / ".github" / "ISSUE_TEMPLATE" / name).read_text("utf-8"))
    assert {"name", "description", "body"} <= set(form)
    assert all(part["type"] in ("textarea", "input") and part["attributes"]["label"] for part in form["body"])
