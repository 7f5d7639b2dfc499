"""Check attachments by their predicate types: whoever may push can have written one."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from pydantic import ValidationError

from rdma_images.core.plain import decode_json
from rdma_images.inspection.report import decode_report
from rdma_images.publish import statement
from rdma_images.publish.evidence import bill
from rdma_images.publish.evidence.policy import VULNERABILITIES
from rdma_images.publish.evidence.scan_result import SEVERITIES
from rdma_images.publish.gate import COMMITTED

# Names of the attachments that are checked, by predicate type.
TITLES = {
    statement.REPORT: "report",
    statement.PROVENANCE: "provenance",
    bill.PREDICATE: "bill of materials",
    statement.RESULTS: "job results",
    statement.TEST_RESULT: "validation",
    VULNERABILITIES: "vulnerabilities",
}
# Attachments that an image may lack: no job may have run it, and no policy may ask for a scan.
OPTIONAL = (statement.RESULTS, statement.TEST_RESULT, VULNERABILITIES)
# The errors of reading bytes of another form than expected.
_MALFORMED = (ValidationError, ValueError, KeyError, IndexError, TypeError, AttributeError)


@dataclass(frozen=True)
class VerifyFinding:
    """The result of one check. `holds` is None where there was nothing to compare with."""

    check: str
    holds: bool | None
    detail: str


# Takes the content, the digest that it has to be about, and the failed checks that the publisher allowed by name.
AttachmentCheck = Callable[[bytes, str, Collection[str]], Iterable[VerifyFinding]]


def check_attachment(
    predicate_type: str, content: bytes | None, digest: str, allowed: Collection[str]
) -> list[VerifyFinding]:
    """Return the findings about an attachment; `content` is None where it is missing."""
    title = TITLES[predicate_type]
    if content is None:
        return [VerifyFinding(title, False, "none attached")]
    try:
        return list(_CHECKS[predicate_type](content, digest, allowed))
    except _MALFORMED:
        return [VerifyFinding(title, False, "cannot be read: it does not have the form that is published here")]


def allowed_failures(report: bytes | None) -> frozenset[str]:
    """Return the allowed failed checks in the attached report; None if it is unreadable."""
    try:
        return frozenset(statement.parse_predicate(report or b"{}").get("allowedFailed") or ())
    except _MALFORMED:
        return frozenset()


def _check_report(content: bytes, digest: str, allowed: Collection[str]) -> Iterator[VerifyFinding]:
    report = decode_report(statement.parse_predicate(content)["report"])
    if not _subject_digest(content) == digest == report.digest:
        yield VerifyFinding("report", False, f"is about another image, {report.digest}")
        return
    failed = {check.id for check in report.checks if check.outcome == "failed" and check.severity == "error"}
    counts = ", ".join(f"{number} {kind}" for kind, number in report.counts.items())
    detail = f"{counts}; measured {report.started} by suite {report.suite.removeprefix('sha256:')[:12]}"
    if excused := sorted(failed.intersection(allowed)):
        detail += f"; failed and allowed by the publisher: {', '.join(excused)}"
    if unexcused := sorted(failed.difference(allowed)):
        detail += f"; failed: {', '.join(unexcused)}"
    if report.warnings:
        detail += f"; warned: {', '.join(report.warnings)}"
    yield VerifyFinding("report", not unexcused, detail)
    if report.stand_ins:
        yield VerifyFinding(
            "rehearsal", False, f"stand-ins for {', '.join(report.stand_ins)}: do not deploy this image"
        )


def _check_provenance(content: bytes, digest: str, allowed: Collection[str]) -> Iterator[VerifyFinding]:
    predicate = statement.parse_predicate(content)
    definition, details = predicate["buildDefinition"], predicate["runDetails"]
    programs = ", ".join(f"{name} {version}" for name, version in details["builder"]["version"].items())
    sources = definition["resolvedDependencies"]
    commits = [source.get("digest", {}).get("gitCommit", "") for source in sources]
    commit = next(filter(None, commits), "")[:12]
    detail = f"built {details['metadata']['finishedOn']} with {programs or 'programs that it does not name'} "
    detail += f"from commit {commit}" if commit else "from an unknown commit"
    clean = definition["internalParameters"]["clean"] is True
    if not clean:
        detail += " and uncommitted files"
        detail += "; allowed by the publisher" if COMMITTED in allowed else ""
    yield VerifyFinding("provenance", _subject_digest(content) == digest and (clean or COMMITTED in allowed), detail)


def _check_bill(content: bytes, digest: str, _allowed: Collection[str]) -> Iterator[VerifyFinding]:
    body = decode_json(content)
    described = body["metadata"]["component"]["version"]
    yield VerifyFinding("bill of materials", described == digest, f"{len(body['components'])} packages")


def _check_validation(content: bytes, digest: str, allowed: Collection[str]) -> Iterator[VerifyFinding]:
    """Check the validation that an image built elsewhere has in place of a provenance."""
    predicate = statement.parse_predicate(content)
    holds = _subject_digest(content) == digest and not set(predicate["failedTests"]).difference(allowed)
    count = len(predicate["passedTests"])
    yield VerifyFinding(
        "origin", holds, f"built elsewhere, by whom is not known; validated here, {count} checks passed"
    )


def _check_results(content: bytes, digest: str, _allowed: Collection[str]) -> Iterator[VerifyFinding]:
    for result in statement.parse_predicate(content)["results"]:
        where = f"{result['nodes']} x {result['instance']}" if result["instance"] else result["job"]
        holds = _subject_digest(content) == digest == result["digest"] and result["exit_code"] == 0
        yield VerifyFinding("job result", holds, f"{where}: {result['sentence']}; {result['time']}")


def _check_vulnerabilities(content: bytes, digest: str, _allowed: Collection[str]) -> Iterator[VerifyFinding]:
    predicate = statement.parse_predicate(content)
    scanner, results = predicate["scanner"], predicate["scanner"]["result"]
    outcomes = Counter(str(result["annotations"][0]["outcome"]) for result in results)
    severities = Counter(str(result["severity"][0]["score"]) for result in results)
    counts = ", ".join(f"{severities[name]} {name}" for name in SEVERITIES if severities[name]) or "none"
    judged = f" ({', '.join(f'{count} {outcome}' for outcome, count in outcomes.items())})" if outcomes else ""
    program = f"{scanner['uri'].rpartition(':')[2]} {scanner['version']}".strip()
    detail = f"{counts}{judged}; scanned {predicate['metadata']['scanFinishedOn']} by {unquote(program)}"
    yield VerifyFinding(TITLES[VULNERABILITIES], _subject_digest(content) == digest and not outcomes["refused"], detail)


_CHECKS: dict[str, AttachmentCheck] = {
    statement.REPORT: _check_report,
    statement.PROVENANCE: _check_provenance,
    bill.PREDICATE: _check_bill,
    statement.RESULTS: _check_results,
    statement.TEST_RESULT: _check_validation,
    VULNERABILITIES: _check_vulnerabilities,
}


def _subject_digest(content: bytes) -> str:
    """Return the digest that a statement is about."""
    digest = decode_json(content)["subject"][0]["digest"]
    return f"sha256:{digest['sha256']}"
