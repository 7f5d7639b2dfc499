"""The gate: require a report about the image's digest, of today's suite, without failures."""

from collections.abc import Sequence

from rdma_images.core.check import Check
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import BuildRecord
from rdma_images.core.paths import COMMAND
from rdma_images.inspection.report import Report
from rdma_images.publish.report_versions import is_commit, revision
from rdma_images.registry.registries import is_loopback

# A check of the gate itself, beside the validators': it can be allowed like one of theirs.
COMMITTED = "source.committed"


def require_publishable(
    build: BuildRecord,
    report: Report,
    suite: str,
    choice: str,
    allow_failed: Sequence[str] = (),
    is_built_here: bool = True,
) -> tuple[str, ...]:
    """Require a `build` that may be published; return the failed checks that the user allowed by name.

    Args:
        suite: The digest of the validators as they are now.
        choice: The options of `validate` that choose this image alone.
        allow_failed: Ids of checks that may fail; each must have failed in some report, see `require_known_failures`.
        is_built_here: Whether its sources must be in a commit: those of one built elsewhere are not known.

    Raises:
        RefusedError: `report` does not validate `build`; the error says what to do.
    """
    retry_advice = f"\nrun `{COMMAND} validate {choice}`, then publish again"
    if report.digest != build.digest:
        raise RefusedError(
            f"{build.image_id}: the report is about {report.digest}, but {build.digest} would be published"
            f"{retry_advice}"
        )
    if report.suite != suite:
        raise RefusedError(f"{build.image_id} was validated by another suite than today's{retry_advice}")
    if not any(check.outcome == "passed" for check in report.checks):
        raise RefusedError(f"{build.image_id}: no check passed in its report{retry_advice}")
    if set(report.stand_ins) != set(build.stand_ins):
        raise RefusedError(f"{build.image_id}: build and report name different stand-ins{retry_advice}")
    if report.unmeasured:
        raise RefusedError(
            f"{build.image_id}: {', '.join(report.unmeasured)}: not measured, as the machine was too busy\n"
            f"run `{COMMAND} validate {choice} --again`, then publish again"
        )
    failed = _failed(report, is_built_here)
    unexcused = [failure for failure in failed if failure.id not in allow_failed]
    if unexcused:
        listed = "; ".join(
            f"{failure.id}: {failure.title}{f' (found {failure.actual})' if failure.actual else ''}"
            for failure in unexcused
        )
        fix = unexcused[0].fix or "fix what the check reports"
        raise RefusedError(
            f"{build.image_id} has failed checks: {listed}\n"
            f"{fix}; or allow each by name: --allow-failed {unexcused[0].id}"
        )
    return tuple(sorted({failure.id for failure in failed}))


def require_known_failures(reports: Sequence[Report], allow_failed: Sequence[str], is_built_here: bool = True) -> None:
    """Raise RefusedError for an allowed id of a check that did not fail."""
    failed = {check.id for report in reports for check in _failed(report, is_built_here)}
    for check_id in allow_failed:
        if check_id not in failed:
            advice = suggestion(check_id, sorted(failed)) if failed else "no check failed"
            raise RefusedError(f"--allow-failed {check_id}: no such failed check\n{advice}")


def check_rehearsal_host(build: BuildRecord, host: str) -> None:
    """Raise RefusedError when a rehearsal would leave this machine."""
    if build.stand_ins and not is_loopback(host):
        raise RefusedError(
            f"{build.image_id} is a rehearsal (stand-ins for {', '.join(build.stand_ins)}) and may only go "
            f"to a registry on the loopback interface, which {host} is not\nbuild it without --rehearse"
        )


def _failed(report: Report, is_built_here: bool) -> tuple[Check, ...]:
    """Return the failed checks of the report, and the gate's own for images built here."""
    failed = tuple(check for check in report.checks if check.outcome == "failed" and check.severity == "error")
    commit = revision(report)
    return failed if is_commit(commit) or not is_built_here else (*failed, _uncommitted(commit))


def _uncommitted(commit: str) -> Check:
    """Return the gate's own failed check: sources that are in no commit cannot be looked up."""
    return Check(
        id=COMMITTED,
        title="it is made from committed sources alone",
        tier="static",
        severity="error",
        outcome="failed",
        actual=commit or "no commit",
        fix="commit the sources and build again",
    )
