"""The gate: an image may be published when its report is about its digest, of today's suite, and no check failed."""

from collections.abc import Sequence
from dataclasses import dataclass

from rdma_images.core.errors import RefusedError, near
from rdma_images.core.paths import COMMAND
from rdma_images.core.pipeline import Build, Check
from rdma_images.inspection.report import Report
from rdma_images.publish.from_report import is_commit, revision
from rdma_images.registry.registries import is_loopback

# A check of the gate itself, beside the validators': it can be allowed like one of theirs.
COMMITTED = "source.committed"


@dataclass(frozen=True)
class Passed:
    """An image that may be published, with the failed checks that the user allowed by name."""

    allowed_red: tuple[str, ...] = ()


def check(build: Build, report: Report | None, suite: str, allow_red: Sequence[str] = ()) -> Passed:
    """Raise RefusedError, with what to do, unless `report` validates `build`.

    `suite` is the digest of the validators as they are now. Each id in `allow_red` must be a failed check of
    some report (`check_exceptions`): an exception that no image needs is a mistake.
    """
    again = f"\nrun `{COMMAND} validate`, then publish again"
    if report is None:
        raise RefusedError(f"{build.image_id} was never validated{again}")
    if report.digest != build.digest:
        raise RefusedError(
            f"{build.image_id}: the report is about {report.digest}, but {build.digest} would be published{again}"
        )
    if report.suite != suite:
        raise RefusedError(f"{build.image_id} was validated by another suite than today's{again}")
    if not any(one.outcome == "passed" for one in report.checks):
        raise RefusedError(f"{build.image_id}: no check passed in its report{again}")
    if set(report.rehearsal) != set(build.rehearsal):
        raise RefusedError(f"{build.image_id}: build and report name different stand-ins{again}")
    failed = _failed(report)
    left = [one for one in failed if one.id not in allow_red]
    if left:
        listed = "; ".join(f"{one.id}: {one.title}{f' (found {one.found})' if one.found else ''}" for one in left)
        fix = left[0].fix or "fix what the check reports"
        raise RefusedError(
            f"{build.image_id} has failed checks: {listed}\n{fix}; or allow each by name: --allow-red {left[0].id}"
        )
    return Passed(tuple(sorted({one.id for one in failed})))


def check_exceptions(reports: Sequence[Report], allow_red: Sequence[str]) -> None:
    """Raise RefusedError for an exception that is no failed check of any report."""
    failed = {one.id for report in reports for one in _failed(report)}
    for name in allow_red:
        if name not in failed:
            known = near(name, sorted(failed)) if failed else "no check failed"
            raise RefusedError(f"--allow-red {name}: no such failed check\n{known}")


def check_place(build: Build, host: str) -> None:
    """Raise RefusedError when a rehearsal would leave this machine."""
    if build.rehearsal and not is_loopback(host):
        raise RefusedError(
            f"{build.image_id} is a rehearsal (stand-ins for {', '.join(build.rehearsal)}) and may only go "
            f"to a registry on the loopback interface, which {host} is not\nbuild it without --rehearse"
        )


def _failed(report: Report) -> tuple[Check, ...]:
    """The failed checks of the report, and the gate's own."""
    failed = tuple(one for one in report.checks if one.outcome == "failed" and one.severity == "error")
    made_from = revision(report)
    return failed if is_commit(made_from) else (*failed, _uncommitted(made_from))


def _uncommitted(made_from: str) -> Check:
    """The check of the gate itself: sources that are in no commit cannot be looked up."""
    return Check(
        id=COMMITTED,
        title="it is made from committed sources alone",
        tier="static",
        severity="error",
        outcome="failed",
        found=made_from or "no commit",
        fix="commit the sources and build again",
    )
