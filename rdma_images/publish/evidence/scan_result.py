"""The result of a scan: an image's vulnerabilities by severity."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import AwareDatetime

from rdma_images.core.plain import plain
from rdma_images.core.step_files import step_file

Severity = Literal["critical", "high", "medium", "low", "negligible", "unknown"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

# CycloneDX's words for what Trivy and Grype call negligible.
_WORDS: dict[str, Severity] = {"info": "negligible", "none": "negligible", **{name: name for name in SEVERITIES}}


@dataclass(frozen=True)
class Vulnerability:
    """One vulnerability of one installed package."""

    id: str  # "CVE-2026-1234", or another database's id
    package: str
    installed: str  # version
    severity: Severity
    fixed_in: str = ""  # version; empty without a fix
    published: str = ""  # the day of the advisory, ISO 8601; empty where the scanner does not say it

    def __post_init__(self) -> None:
        """Escape what a terminal would obey: the report is not trusted."""
        for name in ("id", "package", "installed", "fixed_in"):
            object.__setattr__(self, name, plain(getattr(self, name)).strip())


@dataclass(frozen=True)
class Scan:
    """One scan of one image."""

    digest: str  # of the image, which the scan was shown to be about
    scanner: str  # "trivy 0.74.0"
    finished: AwareDatetime
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


def unique(vulnerabilities: Iterable[Vulnerability]) -> tuple[Vulnerability, ...]:
    """Return each vulnerability of a package once, the worst first."""
    once: dict[tuple[str, str, str], Vulnerability] = {}
    for vulnerability in vulnerabilities:
        once.setdefault((vulnerability.id, vulnerability.package, vulnerability.installed), vulnerability)
    return tuple(sorted(once.values(), key=lambda v: (SEVERITIES.index(v.severity), v.package, v.id)))
