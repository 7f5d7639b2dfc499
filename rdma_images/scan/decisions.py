"""Judge the vulnerabilities of a scan by a policy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from packaging.version import Version

from rdma_images.components import axis_of_wheel
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.scan.policy import Policy
from rdma_images.scan.scan_result import Scan, Vulnerability, days_since

Outcome = Literal["refused", "in grace", "accepted", "not affected", "no fix", "not refused"]


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
        Decision(vulnerability, *_judge(vulnerability, policy, today)) for vulnerability in scan.vulnerabilities
    )


def _judge(vulnerability: Vulnerability, policy: Policy, today: date) -> tuple[Outcome, str]:
    """Return the outcome for a vulnerability on the day `today`, and its reason; the reason may be ""."""
    for statement in policy.not_affected:
        if statement.covers(vulnerability):
            return "not affected", f"{statement.justification}: {statement.reason} ({statement.owner})"
    for exception in policy.exceptions:
        if exception.covers(vulnerability):
            return "accepted", f"until {exception.until}: {exception.reason} ({exception.owner})"
    days = policy.grace_days.get(vulnerability.severity)
    if days is None:
        return "not refused", f"{vulnerability.severity} is not in grace-days"
    if policy.fixed_only and not vulnerability.fixed_in:
        return "no fix", "fixed-only"
    if not days:
        return "refused", ""
    if not vulnerability.published:
        return "refused", "the scan has no day for it, from which grace could be counted"
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
        raise RefusedError(f"{image_id} was never scanned, and {policy.where()} asks for it\n{fix}")
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
            f"`{COMMAND} scan` shows them with the rows that fix them; or except each in the policy, with an end"
        )
    return decisions


def fixes(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Return rows of matrix.yaml and a command that fix the refused vulnerabilities."""
    refused = [decision.vulnerability for decision in decisions if decision.outcome == "refused"]
    debian: dict[str, None] = {}
    python: dict[str, None] = {}
    axes: dict[str, None] = {}
    for vulnerability in refused:
        version = _nearest_fix(vulnerability)
        if version and vulnerability.ecosystem in ("deb", "debian", "ubuntu"):
            debian[f"{vulnerability.package}={version}"] = None
        elif version and vulnerability.ecosystem in ("pypi", "python-pkg", "python"):
            axis = axis_of_wheel(vulnerability.package)
            (axes if axis else python)[axis or f"{vulnerability.package}>={version}"] = None
    rows = (("debian-packages", debian), ("python-packages", python))
    lines = [f"{key}: [{', '.join(entries)}]" for key, entries in rows if entries]
    return (*lines, *((f"`{COMMAND} matrix.bump --write` ({', '.join(axes)})",) if axes else ()))


def _nearest_fix(vulnerability: Vulnerability) -> str:
    """Return the first version with the fix after the installed one.

    Scanners list one for each line of releases.
    """
    listed = [version.lstrip(">= ") for version in vulnerability.fixed_in.split(",") if version.strip()]
    try:
        installed = Version(vulnerability.installed)
        return min((version for version in listed if Version(version) > installed), key=Version, default="")
    except ValueError:  # also of a number with more digits than Python reads
        return listed[-1] if listed else ""
