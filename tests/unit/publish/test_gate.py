"""Nothing passes that was not validated, for exactly this digest and today's suite."""

import dataclasses
from collections.abc import Sequence

import pytest

from rdma_images.core.check import Check
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.report import Report
from rdma_images.publish import gate
from tests.support.case_parts import GREEN, REVISION, recorded


def committed(revision: str) -> Inspection:
    """Return what was measured of an image that says that it was made from `revision`."""
    inspection = recorded()
    return inspection.model_copy(
        update={"subject": inspection.subject.model_copy(update={"labels": {REVISION: revision}})}
    )


SUITE = "sha256:5"
BUILD = BuildRecord("efa-1", "rdma-images/efa:1", "sha256:1", "sha256:2", (), "2026-11-21T08:00:00+00:00", 1.0)
RED = Check("plugin.found", "the plugin is found", "static", "error", "failed", actual="nothing")
WARNING = Check("size.budget", "the image is small", "static", "warning", "failed")
COMMITTED = committed("a" * 40)
SKIPPED = Check("gpu.seen", "torch sees the GPUs", "gpu", "error", "skipped", reason="no GPU")


def report(
    *checks: Check, digest: str = "sha256:1", suite: str = SUITE, facts: Inspection | None = COMMITTED
) -> Report:
    return Report("r", digest, suite, "efa-1", (), "2026-11-21T08:01:00+00:00", 1.0, checks or (GREEN,), facts)


def refusal(validated: Report, build: BuildRecord = BUILD, allow: Sequence[str] = ()) -> str:
    with pytest.raises(RefusedError) as caught:
        gate.require_publishable(build, validated, SUITE, "--target efa", allow)
    return str(caught.value)


def test_an_image_without_failed_checks_passes() -> None:
    assert gate.require_publishable(BUILD, report(GREEN, WARNING, SKIPPED), SUITE, "--target efa") == ()


def test_another_digest() -> None:
    assert "sha256:9" in refusal(report(digest="sha256:9"))


def test_another_suite_and_how_this_one_validates_the_image_alone() -> None:
    assert "another suite" in refusal(report(suite="sha256:6"))
    assert refusal(report(suite="sha256:6")).endswith("run `invoke validate --target efa`, then publish again")


def test_a_report_in_which_nothing_passed_is_refused() -> None:
    assert "no check passed" in refusal(report(SKIPPED))


def test_red_names_the_check_and_the_way() -> None:
    refusal_text = refusal(report(GREEN, RED))
    assert "plugin.found: the plugin is found (found nothing)" in refusal_text
    assert "--allow-failed plugin.found" in refusal_text


def test_an_exception_is_for_one_check() -> None:
    other = dataclasses.replace(RED, id="verbs.abi")
    assert gate.require_publishable(BUILD, report(GREEN, RED), SUITE, "--target efa", ["plugin.found"]) == (
        "plugin.found",
    )
    assert "verbs.abi" in refusal(report(GREEN, RED, other), allow=["plugin.found"])


@pytest.mark.parametrize("facts", [committed("a" * 40 + "-dirty"), committed("unknown"), committed(""), None])
def test_what_no_commit_has_does_not_pass_unless_it_is_allowed(facts: Inspection | None) -> None:
    new_report = report(facts=facts)
    refusal_text = refusal(new_report)
    assert "made from committed sources alone" in refusal_text
    assert (
        "\ncommit the sources and build again; or allow each by name: --allow-failed source.committed" in refusal_text
    )
    gate.require_known_failures([new_report], [gate.COMMITTED])
    assert gate.require_publishable(BUILD, new_report, SUITE, "--target efa", [gate.COMMITTED]) == (gate.COMMITTED,)


def test_an_exception_nobody_needs_is_a_mistake() -> None:
    with pytest.raises(RefusedError, match=r"did you mean plugin\.found"):
        gate.require_known_failures([report(GREEN, RED)], ["plugin.fuond"])
    with pytest.raises(RefusedError, match="no check failed"):
        gate.require_known_failures([report()], ["plugin.found"])


def test_a_rehearsal_stays_on_this_machine() -> None:
    rehearsal = dataclasses.replace(BUILD, stand_ins=("efa-installer-1.50.0",))
    gate.check_rehearsal_host(rehearsal, "127.0.0.1:5000")
    with pytest.raises(RefusedError, match="is a rehearsal"):
        gate.check_rehearsal_host(rehearsal, "registry.example.com")
    gate.check_rehearsal_host(BUILD, "registry.example.com")
    assert "differ" in refusal(report(), rehearsal)
