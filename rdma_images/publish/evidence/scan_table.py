"""Show a scan with the policy's decisions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.publish.evidence.policy import NAME, Decision
from rdma_images.publish.evidence.scan_result import Scan, Vulnerability

_STYLES = {"critical": "bold red", "high": "red", "medium": "yellow"}


def scan_text(name: str, scan: Scan, decisions: Sequence[Decision] | None) -> RenderableType:
    """Return the refused vulnerabilities, or all without a policy."""
    parts: list[RenderableType] = []
    refused = [decision for decision in decisions or () if decision.outcome == "refused"]
    rows = [(decision.vulnerability, decision.why) for decision in refused]
    if decisions is None:
        rows = [(vulnerability, "") for vulnerability in scan.vulnerabilities]
    if rows:
        parts.append(_table(rows))
    parts.append(Text(summary(name, scan, decisions), "bold red" if refused else "bold green"))
    if decisions is None:
        parts.append(Text(f"no {NAME}: nothing is refused; name a policy with --policy", "yellow"))
    return Group(*parts)


def summary(name: str, scan: Scan, decisions: Sequence[Decision] | None) -> str:
    """Return in one sentence the outcomes, severities, scanner and days."""
    outcomes = Counter(decision.outcome for decision in decisions or ())
    judged = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    severities = ", ".join(f"{count} {severity}" for severity, count in scan.counts.items()) or "no vulnerability"
    return f"{name}: {f'{judged}; ' if judged else ''}{severities}; {scan.scanner} on {scan.finished:%Y-%m-%d}"


def as_json(name: str, scan: Scan, decisions: Sequence[Decision] | None) -> dict[str, object]:
    """Return the scan and the decisions in the form of `scan --json`."""
    return {
        "image": name,
        "digest": scan.digest,
        "scanner": scan.scanner,
        "finished": scan.finished.isoformat(),
        "counts": scan.counts,
        "vulnerabilities": [
            asdict(decision.vulnerability) | {"outcome": decision.outcome, "why": decision.why}
            for decision in decisions or ()
        ]
        or [asdict(vulnerability) for vulnerability in scan.vulnerabilities],
    }


def _table(rows: Sequence[tuple[Vulnerability, str]]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for column in ("severity", "vulnerability", "package", "installed", "fixed in", "why"):
        table.add_column(column, overflow="fold")
    for vulnerability, why in rows:
        severity = Text(vulnerability.severity, _STYLES.get(vulnerability.severity, ""))
        columns = (vulnerability.id, vulnerability.package, vulnerability.installed, vulnerability.fixed_in or "-", why)
        table.add_row(severity, *map(Text, columns))
    return table
