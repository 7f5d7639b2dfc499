"""Every incident is told for its own reason, its fix works, and good images of other makers get no error."""

from pathlib import Path

import pytest
import yaml

from tests.incidents import case, run
from tests.incidents.case import Incident, incidents


@pytest.fixture(scope="module")
def outcomes() -> dict[str, run.Outcome]:
    return run.outcomes(incidents())


@pytest.mark.parametrize(("name", "incident"), incidents().items(), ids=incidents())
def test_an_incident(name: str, incident: Incident, outcomes: dict[str, run.Outcome]) -> None:
    found = outcomes[name]
    assert found.right(incident) != bool(incident.open), found


CASE = "{name}: {{where: invented, what: nothing, first: right, base: efa}}\n"


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        (["same", "same"], ValueError, "'same' is in 0.yaml and in 1.yaml"),
        (["same\nsame"], yaml.YAMLError, "'same' is written twice"),
    ],
)
def test_a_second_case_of_one_name_is_an_error(
    files: list[str], error: type[Exception], words: str, tmp_path: Path
) -> None:
    for number, names in enumerate(files):
        text = "".join(CASE.format(name=name) for name in names.split("\n"))
        (tmp_path / f"{number}.yaml").write_text(text)
    with pytest.raises(error, match=words):
        case.read(tmp_path)
