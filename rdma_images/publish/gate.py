"""Who may pass: an image whose report, for exactly its digest and today's suite, is green."""

from collections.abc import Sequence
from dataclasses import dataclass

from rdma_images.errors import RefusedError, near
from rdma_images.model import Build, Check, Report
from rdma_images.publish.measured import is_commit, revision
from rdma_images.publish.registries import is_loopback

# A check of the gate itself, beside the validators': it can be allowed like one of theirs.
COMMITTED = "source.committed"


@dataclass(frozen=True)
class Passed:
    """An image that may be published, with the red checks that somebody allowed by name."""

    allowed_red: tuple[str, ...] = ()


def check(build: Build, report: Report | None, suite: str, allow_red: Sequence[str] = ()) -> Passed:
    """Raise RefusedError, with the mend, unless `report` proves `build`.

    `suite` is the digest of the validators as they are now. Each id in `allow_red` must be a red check of this report
    that exists: an exception nobody needs is a mistake.
    """
    again = "validate it (invoke validate) and publish then"
    if report is None:
        raise RefusedError(f"{build.image_id} was never validated: {again}")
    if report.digest != build.digest:
        raise RefusedError(
            f"{build.image_id}: the report is about {report.digest}, but {build.digest} would be published: {again}"
        )
    if report.suite != suite:
        raise RefusedError(f"{build.image_id} was validated by another suite than today's: {again}")
    if not any(one.outcome == "passed" for one in report.checks):
        raise RefusedError(f"{build.image_id}: no check passed in its report, so it proves nothing: {again}")
    if set(report.rehearsal) != set(build.rehearsal):
        raise RefusedError(f"{build.image_id}: build and report differ in what was stood in for: {again}")
    red = _red(report)
    left = [one for one in red if one.id not in allow_red]
    if left:
        listed = "; ".join(f"{one.id}: {one.title}{f' (found {one.found})' if one.found else ''}" for one in left)
        mend = left[0].mend or "mend it"
        raise RefusedError(
            f"{build.image_id} is not green: {listed}. {mend[0].upper()}{mend[1:]}, or name each exception: "
            f"--allow-red {left[0].id}"
        )
    return Passed(tuple(sorted({one.id for one in red})))


def check_exceptions(reports: Sequence[Report], allow_red: Sequence[str]) -> None:
    """Raise RefusedError for an exception that no report has as a red check."""
    red = {one.id for report in reports for one in _red(report)}
    for name in allow_red:
        if name not in red:
            known = near(name, sorted(red)) if red else "no check is red"
            raise RefusedError(f"--allow-red {name}: there is no such red check: {known}")


def check_place(build: Build, host: str) -> None:
    """Raise RefusedError when a rehearsal would leave this machine."""
    if build.rehearsal and not is_loopback(host):
        raise RefusedError(
            f"{build.image_id} is a rehearsal (stand-ins for {', '.join(build.rehearsal)}) and goes to no registry but "
            f"one on the loopback interface, and {host} is not: build it without --rehearse"
        )


def _red(report: Report) -> tuple[Check, ...]:
    """The red checks of the report, and the gate's own."""
    red = tuple(one for one in report.checks if one.outcome == "failed" and one.severity == "error")
    made_from = revision(report)
    return red if is_commit(made_from) else (*red, _uncommitted(made_from))


def _uncommitted(made_from: str) -> Check:
    """The check of the gate itself: nobody can look up what an image is made of that no commit has."""
    return Check(
        id=COMMITTED,
        title="it is made from committed sources alone",
        tier="static",
        severity="error",
        outcome="failed",
        found=made_from or "no commit",
        mend="commit the sources and build again",
    )
