"""The result of a scan: an image's vulnerabilities by severity."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal, get_args

from rdma_images.core.plain import plain
from rdma_images.core.step_files import step_file

Severity = Literal["critical", "high", "medium", "low", "negligible", "unknown"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

# CycloneDX's words for what Trivy and Grype call negligible.
_WORDS: dict[str, Severity] = {"info": "negligible", "none": "negligible", **{name: name for name in SEVERITIES}}


@dataclass(frozen=True)
class Vulnerability:
    """One vulnerability of one installed package; days are ISO 8601 or empty."""

    id: str  # "CVE-2026-1234", or another database's id
    package: str
    installed: str  # version
    severity: Severity
    fixed_in: str = ""  # version; empty without a fix
    published: str = ""  # the day of the advisory

    def __post_init__(self) -> None:
        """Escape what a terminal would obey: the report is not trusted."""
        for name in ("id", "package", "installed", "fixed_in"):
            object.__setattr__(self, name, plain(getattr(self, name)).strip())


@dataclass(frozen=True)
class Scan:
    """One scan of one image."""

    digest: str  # of the image, which the scan was shown to be about
    scanner: str  # "trivy 0.74.0"
    finished: str  # ISO 8601, UTC
    names_fixes: bool  # whether the scanner says which version fixes a vulnerability
    vulnerabilities: tuple[Vulnerability, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of vulnerabilities by severity, the worst first, without zeros."""
        counted = Counter(vulnerability.severity for vulnerability in self.vulnerabilities)
        return {severity: counted[severity] for severity in SEVERITIES if counted[severity]}


SCAN = step_file("scan.json", "scan", Scan)


def parse_severity(word: str) -> Severity:
    """Return the severity that a scanner's word means."""
    return _WORDS.get(word.strip().lower(), "unknown")


def parse_time(text: str) -> datetime | None:
    """Return an ISO 8601 time in UTC; None if it cannot be parsed."""
    try:
        parsed = datetime.fromisoformat(text.strip())
        parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return parsed if parsed.year > 1970 else None  # Go writes the year 1 for "no time"


def parse_day(text: str) -> str:
    """Return the day of an ISO 8601 time; "" if it cannot be parsed."""
    parsed = parse_time(text)
    return parsed.date().isoformat() if parsed else ""


def unique(vulnerabilities: Iterable[Vulnerability]) -> tuple[Vulnerability, ...]:
    """Return each vulnerability of a package once, the worst first."""
    once: dict[tuple[str, str, str], Vulnerability] = {}
    for vulnerability in vulnerabilities:
        once.setdefault((vulnerability.id, vulnerability.package, vulnerability.installed), vulnerability)
    return tuple(sorted(once.values(), key=lambda v: (SEVERITIES.index(v.severity), v.package, v.id)))


def days_since(scan: Scan, today: date) -> int:
    """Return the age of a scan in days."""
    finished = parse_time(scan.finished)
    return (today - finished.date()).days if finished else 0
