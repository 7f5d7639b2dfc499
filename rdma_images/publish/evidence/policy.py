"""policy.yaml: which vulnerabilities keep an image from being published, and which are excepted until when."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import Field

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND, DATA, PROJECT, display_path
from rdma_images.core.yaml_file import Document, Strict, YamlPath
from rdma_images.publish.evidence.scan_result import Scan, Severity, Vulnerability

EXAMPLE = DATA / "policy.example.yaml"
NAME = "policy.yaml"
VULNERABILITIES = "https://in-toto.io/attestation/vulns/v0.2"  # the predicate type of a scan with decisions


Filled = Annotated[str, Field(min_length=1)]
Days = Annotated[int, Field(ge=0, le=3650)]


class PolicyException(Strict):
    """A vulnerability that is accepted for a time: why, by whom, until when."""

    id: Filled = Field(description="CVE-2026-1234, or another database's id for it.")
    package: str = Field(default="", description="The package; without it every package with this vulnerability.")
    reason: Filled = Field(description="Why, for who reviews it.")
    owner: Filled = Field(description="Who answers for it: a person's or a team's address.")
    until: date = Field(description="Its last day, as 2027-01-31.")

    def covers(self, vulnerability: Vulnerability) -> bool:
        """Return whether it is about this vulnerability."""
        return self.id == vulnerability.id and self.package in ("", vulnerability.package)


class Policy(Document):
    """policy.yaml."""

    grace_days: dict[Severity, Days] = Field(
        description="By severity, the days from the advisory until it refuses an image. "
        "A severity that is not named never refuses one."
    )
    fixed_only: bool = Field(default=False, description="Refuse only where there is a version with a fix.")
    max_scan_age: Days = Field(default=7, description="Days after which a scan is too old.")
    exceptions: tuple[PolicyException, ...] = Field(default=(), description="Accepted for a time.")

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield each exception that has ended."""
        today = datetime.now(UTC).date()
        for number, exception in enumerate(self.exceptions):
            if exception.until < today:
                yield (
                    ("exceptions", number, "until"),
                    f"the exception for {exception.id} ended on {exception.until}\n"
                    f"fix it, or let {exception.owner} decide on a new day",
                )


def load_policy(path: Path) -> Policy:
    """Return the policy in `path`. Raises RefusedError with file and line."""
    if not files.exists(path):
        raise RefusedError(f"{path}: no such file\ncopy {display_path(EXAMPLE)} and change it")
    return yaml_file.load(path, Policy)


def chosen_policy(option: str) -> Policy | None:
    """Return the policy of `--policy`, else the project's; None for neither."""
    if option:
        return load_policy(files.expand_user(option))
    path = PROJECT / NAME
    return load_policy(path) if files.exists(path) else None


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
    age = (today - scan.finished.date()).days
    if not -1 <= age <= policy.max_scan_age:  # where a day has begun already, the scan is of tomorrow
        raise RefusedError(
            f"the scan of {scan.digest} is of {scan.finished:%Y-%m-%d}, {age} days old, and "
            f"{policy.where('max-scan-age')} allows {policy.max_scan_age}\nrun `{COMMAND} scan` again"
        )
    return tuple(
        Decision(vulnerability, *_judge(vulnerability, policy, today, scan.names_fixes))
        for vulnerability in scan.vulnerabilities
    )


def _judge(vulnerability: Vulnerability, policy: Policy, today: date, names_fixes: bool) -> tuple[Outcome, str]:
    """Return the outcome for a vulnerability on the day `today`, and its reason; the reason may be "".

    Missing answers count against the image: if the scanner names no fixes, every vulnerability may have one.
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
    published = date.fromisoformat(vulnerability.published) if vulnerability.published else date.max
    if published > today + timedelta(1):
        return "refused", "the scanner does not say when it was published, so no days of grace are counted"
    last_day = published + timedelta(days)
    if today <= last_day:
        return "in grace", f"until {last_day}"
    return "refused", f"published {vulnerability.published}, grace of {days} days"


def require_passed(image_id: str, scan: Scan | None, digest: str, policy: Policy, today: date) -> tuple[Decision, ...]:
    """Return the decisions on an image that may be published by its policy.

    Raises:
        RefusedError: The image was not scanned, the scan is of another image or too old, or a vulnerability is refused.
    """
    fix = f"run `{COMMAND} scan` for it"
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
    results = []
    for decision in decisions:
        vulnerability = decision.vulnerability
        annotation = {
            "package": vulnerability.package,
            "installed": vulnerability.installed,
            "fixedIn": vulnerability.fixed_in,
            "outcome": decision.outcome,
            "why": decision.why,
        }
        severity = {"method": "scanner", "score": vulnerability.severity}
        results.append({"id": vulnerability.id, "severity": [severity], "annotations": [annotation]})
    name, _, version = scan.scanner.partition(" ")
    return {
        "scanner": {"uri": f"urn:scanner:{quote(name)}", "version": version, "result": results},
        "metadata": {"scanStartedOn": scan.finished.isoformat(), "scanFinishedOn": scan.finished.isoformat()},
    }
