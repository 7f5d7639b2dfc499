"""What a build came to: three lines an image, and the truth about rehearsals."""

import json

from rdma_images.core.check import Check, Outcome
from rdma_images.core.image import Build
from rdma_images.inspection.report import Report
from rdma_images.report import build_summary
from tests.support.case_parts import recorded


def build(rehearsal: tuple[str, ...] = ()) -> Build:
    ref = "rdma-images/efa-pytorch:1" + ("-rehearsal" if rehearsal else "")
    return Build("efa-pytorch-1", ref, "sha256:00", "sha256:11", rehearsal, "2026-11-21T00:00:00+00:00", 1.0)


def report(*outcomes: Outcome, rehearsal: tuple[str, ...] = ()) -> Report:
    checks = tuple(Check(f"a.{n}", "it holds", "static", "error", outcome) for n, outcome in enumerate(outcomes))
    built = build(rehearsal)
    return Report(built.ref, built.digest, "sha256:22", built.image_id, rehearsal, "2026", 1.0, checks, recorded())


def test_what_passed_is_counted() -> None:
    summary = build_summary.summary_text([build()], [report("passed", "passed", "skipped")]).plain
    assert summary.splitlines()[1] == "  checks  2 passed, 1 skipped"


def test_a_failure_is_counted() -> None:
    assert "1 passed, 1 failed" in build_summary.summary_text([build()], [report("passed", "failed")]).plain


def test_a_rehearsal_is_never_only_green() -> None:
    summary = build_summary.summary_text(
        [build(("efa-installer-1",))], [report("passed", rehearsal=("efa-installer-1",))]
    ).plain
    assert "a rehearsal without efa-installer-1" in summary


def test_an_image_that_nobody_validated_says_so() -> None:
    assert "not validated" in build_summary.summary_text([build()], []).plain


def test_programs_get_the_checks_without_what_was_measured() -> None:
    data = json.loads(build_summary.as_json([build()], [report("failed")]))
    assert data["builds"][0]["ref"] == "rdma-images/efa-pytorch:1"
    assert data["reports"][0]["passed"] is False
    assert "facts" not in data["reports"][0]
