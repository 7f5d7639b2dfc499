"""Every incident is reported for its own reason, its fix works, and good images of other makers get no error."""

from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from tests.incidents import case, run
from tests.incidents.case import Incident, incidents


@pytest.fixture(scope="module")
def outcomes() -> dict[str, run.Outcome]:
    return run.outcomes(incidents())


@pytest.mark.parametrize(("name", "incident"), incidents().items(), ids=incidents())
def test_an_incident(name: str, incident: Incident, outcomes: dict[str, run.Outcome]) -> None:
    assert outcomes[name].right(incident), outcomes[name]


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
