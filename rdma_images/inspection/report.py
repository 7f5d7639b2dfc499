"""What validating an image comes to: the checks, and what they relate. The form is docs/report-schema.json."""

import functools
from dataclasses import dataclass

from pydantic import TypeAdapter

from rdma_images.core.pipeline import Check
from rdma_images.inspection import measurements
from rdma_images.inspection.inspection import Case

SCHEMA = 2


OUTCOMES = ("passed", "failed", "warned", "skipped")


def shown_outcome(check: Check) -> str:
    """Return the outcome as it is shown: a failed check that is only a warning is "warned"."""
    return "warned" if check.outcome == "failed" and check.severity == "warning" else check.outcome


@dataclass(frozen=True)
class Report:
    """Everything measured in one image by one suite."""

    ref: str
    digest: str  # of the image validated
    suite: str  # digest of the validators that ran
    image_id: str | None  # None for an image nobody here planned
    rehearsal: tuple[str, ...]
    started: str  # ISO 8601, UTC
    seconds: float
    checks: tuple[Check, ...]
    facts: Case | None = None  # what the checks relate
    schema: int = SCHEMA
    reused: bool = False  # answered from a report kept: same image, same suite, same question

    @property
    def counts(self) -> dict[str, int]:
        """How many checks passed, failed, warned and were skipped, in this order; none that is 0."""
        shown = [shown_outcome(check) for check in self.checks]
        return {word: shown.count(word) for word in OUTCOMES if word in shown}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The ids of the checks that warn."""
        return tuple(check.id for check in self.checks if shown_outcome(check) == "warned")

    @property
    def passed(self) -> bool:
        """No check of severity error failed."""
        return not any(c.outcome == "failed" and c.severity == "error" for c in self.checks)


def as_plain(report: Report) -> dict[str, object]:
    """The report as JSON has it."""
    plain: dict[str, object] = _form().dump_python(report, mode="json")
    return plain


def from_plain(found: object) -> Report:
    """The report of decoded JSON, of this schema or of schema 1.

    A measurement of another version that has another form is left out, and `missing` says so. Raises ValueError for
    what is no report, or of a schema that is not known here.
    """
    if isinstance(found, dict):
        schema = found.get("schema", SCHEMA)
        if schema not in (1, SCHEMA):
            raise ValueError(f"it is of schema {schema!r}, and this version reads 1 and {SCHEMA}")
        found = _of_schema_1(found) if schema == 1 else found
        found = {**found, "facts": _facts(found.get("facts"))}
    return _form().validate_python(found)


def _facts(found: object) -> object:
    """The facts without what only another version can read; None for a report that has none."""
    if isinstance(found, dict) and isinstance(measured := found.get("measured"), dict):
        return {**found, "measured": measurements.readable(measured)}
    return None if found == {} else found


def _of_schema_1(found: dict[str, object]) -> dict[str, object]:
    """The report in the form of schema 2: what to do about a failed check is `fix` there, and was `mend`."""
    checks = found.get("checks")
    if isinstance(checks, list):
        checks = [{**one, "fix": one.get("mend", "")} if isinstance(one, dict) else one for one in checks]
    return {**found, "schema": SCHEMA, "checks": checks}


@functools.cache
def _form() -> "TypeAdapter[Report]":
    return TypeAdapter(Report)
