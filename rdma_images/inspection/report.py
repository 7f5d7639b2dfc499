"""The result of validating an image: the checks, and what they compare. See docs/reference/report-schema.json."""

import functools
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from rdma_images.core.check import Check
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.network_chain import Chain

SCHEMA = 2


OUTCOMES = ("passed", "failed", "warned", "noted", "not measured", "skipped")
FAILED_OUTCOMES = {"error": "failed", "warning": "warned", "note": "noted"}


def shown_outcome(check: Check) -> str:
    """Return the outcome as shown: a failed warning is "warned", advice "noted"."""
    return FAILED_OUTCOMES[check.severity] if check.outcome == "failed" else check.outcome


@dataclass(frozen=True)
class Report:
    """Everything measured in one image by one suite."""

    ref: str
    digest: str  # of the image validated
    suite: str  # digest of the validators that ran
    image_id: str | None  # None for an image nobody here planned
    stand_ins: tuple[str, ...]
    started: str  # ISO 8601, UTC
    seconds: float
    checks: tuple[Check, ...]
    inspection: Annotated[Inspection | None, Field(alias="facts")] = None  # what the checks relate; "facts" in the JSON
    chain: Chain | None = None  # which network NCCL would use; None where the image has no NCCL
    schema: int = SCHEMA
    base_faults: tuple[str, ...] = ()  # failed checks that fail equally in the image that a fabric was added to
    reused: bool = False  # answered from a report kept: same image, same suite, same scenario
    no_longer_checked: tuple[str, ...] = ()  # that passed in the report before this one, and are skipped here

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of checks by outcome, in OUTCOMES' order, without zeros."""
        outcomes = [shown_outcome(check) for check in self.checks]
        return {word: outcomes.count(word) for word in OUTCOMES if word in outcomes}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the ids of the checks that warn."""
        return self.check_ids("warned")

    def check_ids(self, outcome: str) -> tuple[str, ...]:
        """Return the ids of the checks of an outcome of OUTCOMES."""
        return tuple(check.id for check in self.checks if shown_outcome(check) == outcome)

    @property
    def failed(self) -> bool:
        """Return whether a check of severity error failed."""
        return any(c.outcome == "failed" and c.severity == "error" for c in self.checks)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Return the ids of the checks whose measurement the clock ended: of these nothing is known."""
        return self.check_ids("not measured")

    @property
    def passed(self) -> bool:
        """Return whether all was measured, and no check of severity error failed."""
        return not self.failed and not self.unmeasured


def encode_report(report: Report) -> dict[str, object]:
    """Return the report in the form of its JSON."""
    plain: dict[str, object] = _report_type().dump_python(report, mode="json", by_alias=True)
    return plain


def decode_report(decoded: object) -> Report:
    """Return the report of decoded JSON. Raises ValueError for what is no report, or of another schema."""
    if isinstance(decoded, dict):
        schema = decoded.get("schema", SCHEMA)
        if schema != SCHEMA:
            raise ValueError(f"it is of schema {schema!r}, and this version reads {SCHEMA}")
    return _report_type().validate_python(decoded)


@functools.cache
def _report_type() -> "TypeAdapter[Report]":
    return TypeAdapter(Report)
