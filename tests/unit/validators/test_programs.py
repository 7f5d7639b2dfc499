"""What keeps an entry point from starting: an error where it is the image's, a warning where a volume may bring it."""

from typing import Any

import pytest

from rdma_images.inspection.measurements import Programs, StartedProgram
from rdma_images.validate.probes import programs as probe
from rdma_images.validate.pytest_plugin import Requirement, UnmetError
from tests.support import validators_called
from tests.support.changed_case import changed, check_outcome
from validators.test_programs import test_entry_point as check_entry_point


@pytest.mark.parametrize(
    ("by", "fault", "severity"),
    [
        ("", probe.ABSENT, None),
        ("/bin/sh", probe.ABSENT, "warning"),
        ("/start.sh", probe.NO_RIGHT, None),
    ],
)
def test_what_a_volume_may_bring_is_a_warning(by: str, fault: str, severity: str | None) -> None:
    require = Requirement()
    program = StartedProgram(word="/app/serve", program="/app/serve", fault=fault, by=by)
    with pytest.raises(UnmetError):
        check_entry_point(Programs(started=[program]), require)
    assert require.severity == severity


def ended(entry: list[str], code: int, words: str, *programs: dict[str, str]) -> dict[str, Any]:
    """Return the case with an entry point that does not start the command it is given."""
    settings = {"assigned": [], "absent": [], "programs": {"started": list(programs)}}
    measured = {"settings": settings, "ended_entry": {"code": code, "words": words}}
    return {"subject": {"entrypoint": entry}, "measured": measured}


SCRIPT = {"word": "/start.sh", "program": "/start.sh", "interpreter": "/bin/bash"}
BINARY = {"word": "vllm", "program": "/opt/venv/bin/vllm", "interpreter": "/opt/venv/bin/python3"}
SHELL = {"word": "/bin/sh", "program": "/bin/sh"}


@pytest.mark.parametrize(
    ("case", "severity", "words"),
    [
        (
            ended(["/start.sh"], 0, "ready", SCRIPT),
            "warning",
            "the entry point /start.sh ends with 0, and the command ",
        ),
        (ended(["tini", "--", "/start.sh"], 1, "x: command not found", SCRIPT), "warning", "/start.sh ends with 1"),
        (ended(["/bin/sh", "-c", "train"], 0, "", SHELL), "warning", "the entry point /bin/sh -c ends with 0"),
        (ended(["/start.sh"], 1, "mkdir: cannot create 'x': Read-only file system", SCRIPT), "note", "Read-only"),
        (ended(["/start.sh"], 1, "/start.sh: line 2: RANK: unbound variable", SCRIPT), "note", "RANK: unbound"),
        (
            ended(["vllm", "serve"], 2, "unrecognized arguments: cat", BINARY),
            "note",
            "the entry point vllm ends with 2",
        ),
    ],
)
def test_an_entry_point_that_drops_the_command(case: dict[str, Any], severity: str, words: str) -> None:
    (check,) = validators_called.checks(changed(**case), {"programs.command"})
    assert (check.outcome, check.severity) == ("failed", severity)
    assert words in check.actual


def test_what_starts_the_command_passes_and_what_is_unknown_is_skipped() -> None:
    assert check_outcome("programs.command", measured={"entry": {"given": {}, "removed": []}}) == "passed"
    assert check_outcome("programs.command", measured={"entry": None}) == "skipped: the entry point was not started"
    absent = ended(["/start.sh"], 127, "", {**SCRIPT, "fault": probe.NO_INTERPRETER})
    assert check_outcome("programs.command", **absent) == "skipped: a program is not started: see programs.entry-point"
