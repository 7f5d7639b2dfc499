"""Every incident is told for its own reason, its fix works, and good images of other makers get no error."""

import pytest

from tests.incidents import run
from tests.incidents.case import Incident, incidents


@pytest.fixture(scope="module")
def outcomes() -> dict[str, run.Outcome]:
    return run.outcomes(incidents())


@pytest.mark.parametrize(("name", "incident"), incidents().items(), ids=incidents())
def test_an_incident(name: str, incident: Incident, outcomes: dict[str, run.Outcome]) -> None:
    found = outcomes[name]
    assert found.right(incident) != bool(incident.open), found
