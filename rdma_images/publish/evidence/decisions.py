"""Judge the vulnerabilities of a scan by a policy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal
from urllib.parse import quote

from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.publish.evidence.policy import Policy
from rdma_images.publish.evidence.scan_result import Scan, Vulnerability, days_since

VULNERABILITIES = "https://in-toto.io/attestation/vulns/v0.2"  # the predicate type

Outcome = Literal["refused", "in grace", "accepted", "no fix", "not refused"]


@dataclass(frozen=True)
class Decision:
    """The policy's outcome for one vulnerability, and its reason."""

    vulnerability: Vulnerability
    outcome: Outcome
    why: str


def decide(scan: Scan, policy: Policy, today: date) -> tuple[Decision, ...]:
    """Return the decision on each vulnerability, in the order of the scan.

    Raises RefusedError for a scan that is too old, or of the future.
    """
    age = days_since(scan, today)
    if age < -1:
        raise RefusedError(
            f"the scan of {scan.digest} is of {scan.finished[:10]}, which is in the future\n"
            f"set this machine's clock, or run `{COMMAND} scan` again"
        )
    if age > policy.max_scan_age:
        raise RefusedError(
            f"the scan of {scan.digest} is of {scan.finished[:10]}, {age} days old, and "
            f"{policy.where('max-scan-age')} allows {policy.max_scan_age}\nrun `{COMMAND} scan` again"
        )
    return tuple(
        Decision(vulnerability, *_judge(vulnerability, policy, today, scan.names_fixes))
        for vulnerability in scan.vulnerabilities
    )


def _judge(vulnerability: Vulnerability, policy: Policy, today: date, names_fixes: bool) -> tuple[Outcome, str]:
    """Return the outcome for a vulnerability on the day `today`, and its reason; the reason may be "".

    What the scanner does not say counts against the image: where it names no fixes, every vulnerability may have one.
    """
    for exception in policy.exceptions:
        if exception.covers(vulnerability):
            return "accepted", f"until {exception.until}: {exception.reason} ({exception.owner})"
    days = policy.grace_days.get(vulnerability.severity)
    if days is None:
        return "not refused", f"{vulnerability.severity} is not in grace-days"
    if policy.fixed_only and names_fixes and not vulnerability.fixed_in:
        return "no fix", "fixed-only"
    if not days:
        return "refused", ""
    if not vulnerability.published:
        return "refused", "the scanner does not say when it was published, so no days of grace are counted"
    published = date.fromisoformat(vulnerability.published)
    if published > today + timedelta(1):  # a day has begun elsewhere
        return "refused", f"its day, {published}, is in the future: no grace is counted from it"
    last_day = published + timedelta(days)
    if today <= last_day:
        return "in grace", f"until {last_day}"
    return "refused", f"published {vulnerability.published}, grace of {days} days"


def require(image_id: str, scan: Scan | None, digest: str, policy: Policy, today: date) -> tuple[Decision, ...]:
    """Return the decisions on an image that may be published by its policy.

    Raises:
        RefusedError: The image was not scanned, the scan is of another image or too old, an exception has ended, or
            a vulnerability is refused.
    """
    fix = f"run `{COMMAND} scan` for it"
    policy.check(today)
    if scan is None:
        raise RefusedError(f"{image_id} was never scanned, and {policy.where()} requires a scan\n{fix}")
    if scan.digest != digest:
        raise RefusedError(f"{image_id}: the scan is about {scan.digest}, not {digest}\n{fix}")
    decisions = decide(scan, policy, today)
    if refused := [decision.vulnerability for decision in decisions if decision.outcome == "refused"]:
        counted = Counter(vulnerability.severity for vulnerability in refused)
        counts = ", ".join(f"{count} {name}" for name, count in counted.items())
        examples = ", ".join(f"{vulnerability.id} in {vulnerability.package}" for vulnerability in refused[:3])
        remainder = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        raise RefusedError(
            f"{image_id}: {policy.where()} refuses {counts}: {examples}{remainder}\n"
            f"`{COMMAND} scan` shows them all: take versions with a fix, or except each in the policy, with an end"
        )
    return decisions


def vulnerability_predicate(scan: Scan, decisions: Sequence[Decision]) -> dict[str, Any]:
    """Return a scan with the policy's decisions, in the form of in-toto's attestation of vulnerabilities.

    Source: in-toto/attestation, spec/predicates/vuln.md (0.2).
    """
    results = [
        {
            "id": vulnerability.id,
            "severity": [{"method": "scanner", "score": vulnerability.severity}],
            "annotations": [
                {
                    "package": vulnerability.package,
                    "installed": vulnerability.installed,
                    "fixedIn": vulnerability.fixed_in,
                    "outcome": decision.outcome,
                    "why": decision.why,
                }
            ],
        }
        for decision in decisions
        for vulnerability in (decision.vulnerability,)
    ]
    name, _, version = scan.scanner.partition(" ")
    return {
        "scanner": {"uri": f"urn:scanner:{quote(name)}", "version": version, "result": results},
        "metadata": {"scanStartedOn": scan.finished, "scanFinishedOn": scan.finished},
    }
