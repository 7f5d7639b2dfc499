"""Called one by one, the validators say what they say in a session of pytest."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from rdma_images.core.check import Check
from rdma_images.inspection.inspection import Inspection
from tests.incidents import run
from tests.incidents.case import incidents
from tests.support import case_parts, suite_here, validators_called
from validators.nccl import test_nccl as nccl_nccl

OF_A_BASE = {incident.base: name for name, incident in incidents().items()}


def in_a_session(inspection: Inspection) -> dict[str, Check]:
    """Return the checks for the fabric of a inspection, by their ids."""
    return of_its_fabric(suite_here.checks(inspection).values())


def called(inspection: Inspection) -> dict[str, Check]:
    return of_its_fabric(validators_called.checks(inspection))


def of_its_fabric(checks: Iterable[Check]) -> dict[str, Check]:
    return {c.id: replace(c, seconds=0) for c in checks if not c.reason.startswith("not an image for ")}


def test_of_the_recorded_case() -> None:
    case = case_parts.recorded()
    assert called(case) == in_a_session(case)


@pytest.mark.parametrize("name", OF_A_BASE.values())
def test_of_an_incident_of_each_base(name: str) -> None:
    case = run.read_image(name, incidents()[name].image)
    assert called(case) == in_a_session(case)


def test_of_a_mistake_in_a_validator(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: Any) -> NoReturn:
        raise KeyError("x")

    monkeypatch.setattr(nccl_nccl, "release_of", mistaken)
    case = case_parts.recorded()
    checks = called(case)
    assert checks["nccl.label"].actual == "the validator itself failed: KeyError: 'x'"
    assert checks == in_a_session(case)
