"""What goes wrong with jobs: each entry is found by the words that it is for, and names checks that exist."""

import re

import pytest

from rdma_images.core.paths import PROJECT
from rdma_images.facts import Facts
from rdma_images.jobs.check.rules import RULES
from rdma_images.jobs.results import troubleshooting
from tests.support import docs_pages

TROUBLESHOOTING = Facts().troubleshooting
PAGE = PROJECT / "docs" / "guides" / "troubleshooting.md"


def test_the_page_is_what_the_facts_say(request: pytest.FixtureRequest) -> None:
    """Written anew by: pytest tests/unit/jobs/test_troubleshooting.py --update-golden."""
    if request.config.getoption("--update-golden"):
        PAGE.write_text(docs_pages.troubleshooting_page(TROUBLESHOOTING), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == docs_pages.troubleshooting_page(TROUBLESHOOTING)


@pytest.mark.parametrize("name", TROUBLESHOOTING.entries)
def test_an_entry_is_found_by_its_words_and_by_no_other_s(name: str) -> None:
    entry = TROUBLESHOOTING.entries[name]
    assert bool(entry.pattern) == bool(entry.example)
    fitting = [other for other, _ in TROUBLESHOOTING.find_fitting([entry.example], entry.fabric)]
    assert fitting == ([name] if entry.pattern else [])


@pytest.mark.parametrize("name", TROUBLESHOOTING.entries)
def test_what_tells_it_exists(name: str) -> None:
    validators = re.findall(
        r"^\| `([a-z.-]+)`", (PROJECT / "docs" / "reference" / "validators.md").read_text(), re.MULTILINE
    )
    ids = {*validators, *(rule.id for rule in RULES), "job.result", "node.check"}
    assert set(TROUBLESHOOTING.entries[name].checks) <= ids


@pytest.mark.parametrize(
    ("message", "entry"),
    [
        (
            "did not start in 20:00 minutes: j-0: 0/4 nodes are available: 4 Insufficient vpc.amazonaws.com/efa.",
            "no-efa-resource",
        ),
        (
            "0/2 nodes are available: 1 Insufficient hugepages-2Mi, 1 node(s) had taint {x: y}",
            "hugepages few-resources",
        ),
        (
            "0/3 nodes are available: 1 node(s) didn't match pod affinity rules. no new claims to deallocate",
            "zone-too-small",
        ),
        ("pod j-1 was deleted while it ran: Evicted: node n2 was drained", "node-drained"),
        ("Slurm says OUT_OF_MEMORY on n[1-2], exit code 0:125", "rank-killed"),
        ("the channels use TCP sockets (32 NET/Socket): no network plugin was found (libnccl-net.so)", "tcp-on-efa"),
        ("all is well", ""),
    ],
)
def test_what_is_said_in_the_field_leads_to_an_entry(message: str, entry: str) -> None:
    assert {name for name, _ in TROUBLESHOOTING.find_fitting([message], "efa")} == set(entry.split())
    for name in entry.split():
        assert f"docs/guides/troubleshooting.md, {name}" in troubleshooting.fitting_entries(
            [message], "efa", TROUBLESHOOTING
        )


def test_an_entry_of_the_other_fabric_does_not_fit() -> None:
    assert troubleshooting.fitting_entries(["Insufficient aliyun/erdma"], "efa", TROUBLESHOOTING) == ""
