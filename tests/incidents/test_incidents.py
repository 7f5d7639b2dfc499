"""Incidents are reported for their reasons, fixes work, good images get no error."""

import re
from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.report.checks_table import headline
from tests.incidents import case, run
from tests.incidents.case import Incident, incidents

# A path, a variable, a library, or a program or package with its version.
NAMED_PART = re.compile(
    r"/[\w.…+-]+|\b[A-Z]+_\w+|\blib[\w<>-]+\.so|\.driver|[\w-]+ v?\d+\.\d+|\b[Uu]ser \d+|NIXL|[A-Z]{3,}=|starts \w+"
)
# What does not work, or what becomes of that: a negation, or a clause of its own.
EFFECT = re.compile(r"\b(?:not|no|none|cannot|never|without|nothing|neither|another|older)\b|: |, (?:and|which) ")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, run.Outcome]:
    return run.outcomes(incidents())


@pytest.mark.parametrize(("name", "incident"), incidents().items(), ids=incidents())
def test_an_incident(name: str, incident: Incident, outcomes: dict[str, run.Outcome]) -> None:
    assert outcomes[name].right(incident), outcomes[name]


@pytest.mark.parametrize("name", incidents())
def test_first_lines_are_whole_and_name_a_thing_and_what_becomes_of_it(
    name: str, outcomes: dict[str, run.Outcome]
) -> None:
    for check in outcomes[name].findings:
        line = f"{check.id}: {headline(check)}"
        assert NAMED_PART.search(line), line
        assert EFFECT.search(line), line


CASE = "{name}: {{source: invented, summary: nothing, base: efa}}\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["same", "same"], r"'same' is in .*plugin/0\.yaml and in .*plugin/1\.yaml\ngive one"),
        (["same\nsame"], r"0\.yaml:2: 'same' is written twice"),
    ],
)
def test_a_second_case_of_one_name_is_an_error(files: list[str], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    for number, names in enumerate(files):
        (folder / f"{number}.yaml").write_text("".join(CASE.format(name=name) for name in names.split("\n")))
    with pytest.raises(RefusedError, match=words):
        case.read(tmp_path)
