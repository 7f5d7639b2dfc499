"""What a build came to: three lines an image, and the truth about rehearsals."""

import json
from dataclasses import replace

from rdma_images.core.check import Check, Outcome
from rdma_images.core.image import BuildRecord, Onto
from rdma_images.inspection.measurements import Leftovers, MeasuredLayer
from rdma_images.inspection.report import Report
from rdma_images.report import build_summary
from tests.support.case_parts import recorded, report_on
from tests.support.existing_images import REF, existing
from tests.support.images import planned_image

ONTO = replace(planned_image(), onto=Onto(existing(), (), {}, (), ()))
BUILD = BuildRecord(ONTO.id, "rdma-images/mine:1", "sha256:1", "sha256:2", (), "2026-11-21T08:00:00+00:00", 1.0)


def build(rehearsal: tuple[str, ...] = ()) -> BuildRecord:
    ref = "rdma-images/efa-pytorch:1" + ("-rehearsal" if rehearsal else "")
    return BuildRecord("efa-pytorch-1", ref, "sha256:00", "sha256:11", rehearsal, "2026-11-21T00:00:00+00:00", 1.0)


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


def layer(digest: str, size: int) -> MeasuredLayer:
    none = Leftovers()
    return MeasuredLayer(digest=digest, bytes=size, unpacked=size, file_count=1, largest_folder="/usr", leftovers=none)


def summary(layers: list[str], *faults: str) -> str:
    case = recorded()
    measured = tuple(layer(digest, 10_000_000) for digest in layers)
    case = case.model_copy(
        update={
            "subject": case.subject.model_copy(update={"layers": layers}),
            "measured": case.measured.model_copy(update={"layers": measured}),
        }
    )
    report: Report = replace(report_on(ONTO, facts=case), base_faults=faults)
    return str(build_summary.summary_text([BUILD], [report], [ONTO]))


def test_the_size_of_the_difference() -> None:
    text = summary(["sha256:a", "sha256:b", "sha256:c", "sha256:d"])
    assert f"onto    {REF}: its 2 layers are unchanged, 2 above them, 20 MB to pull" in text


def test_faults_that_were_there_before() -> None:
    assert "faults of its own: layers.caches" in summary(["sha256:a", "sha256:b", "sha256:c"], "layers.caches")


def test_layers_that_are_not_the_images_any_more() -> None:
    assert "its layers are not below" in summary(["sha256:x", "sha256:b", "sha256:c"])


def test_nothing_is_said_of_other_images() -> None:
    assert "onto" not in str(build_summary.summary_text([BUILD], [report_on(ONTO)], [planned_image()]))
