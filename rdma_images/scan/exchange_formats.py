"""Reports in the forms that many scanners write: SARIF 2.1.0, and CycloneDX with vulnerabilities."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from rdma_images.scan.formats import (
    Many,
    ReportPart,
    ScannerReport,
    Text,
    base_score,
    digests_in,
    parse_score,
    path,
    purl_type,
    strings,
)
from rdma_images.scan.scan_result import (
    SEVERITIES,
    Severity,
    Vulnerability,
    parse_day,
    parse_severity,
    severity_of_score,
)


class _SarifRule(ReportPart):
    id: str
    help: Text = path("help", "text")
    score: Any = path("properties", "security-severity")


class _SarifResult(ReportPart):
    ruleId: Text = ""
    level: Text = ""
    message: Text = path("message", "text")


class _SarifInvocation(ReportPart):
    endTimeUtc: Text = ""


class _SarifRun(ReportPart):
    tool: Text = path("tool", "driver", "name")
    version: Text = path("tool", "driver", "version")
    rules: Many[_SarifRule] = path("tool", "driver", "rules", default=())
    results: Many[_SarifResult] = ()
    invocations: Many[_SarifInvocation] = ()
    image_id: Any = path("properties", "imageID")
    repository_digests: Any = path("properties", "repoDigests", default=())


class Sarif(ReportPart):
    """SARIF 2.1.0, with the labelled lines that Trivy and Grype write."""

    version: str
    runs: Many[_SarifRun]

    def report(self) -> ScannerReport:
        """Return the scan as a ScannerReport."""
        names = [f"{run.tool} {run.version}".strip() for run in self.runs]
        repository_digests = [digest for run in self.runs for digest in strings(run.repository_digests)]
        ends = [invocation.endTimeUtc for run in self.runs for invocation in run.invocations]
        return ScannerReport(
            scanner=", ".join(dict.fromkeys(filter(None, names))) or "SARIF",
            vulnerabilities=tuple(vulnerability for run in self.runs for vulnerability in _sarif(run)),
            finished=max(ends, default=""),
            digests=digests_in(*(str(run.image_id) for run in self.runs), *repository_digests),
        )


_LABELLED = re.compile(r"^(Package|Installed Version|Version|Fixed Version|Fix Version|Severity): *(.*)$", re.MULTILINE)
_LEVELS: dict[str, Severity] = {"error": "high", "warning": "medium", "note": "low", "none": "negligible"}
_CVE = re.compile(r"(?:CVE-\d{4}-\d{4,}|GHSA(?:-[a-z0-9]{4}){3}|[A-Z]+-\d{4}-\d+)")


def _sarif(run: _SarifRun) -> Iterator[Vulnerability]:
    rules = {rule.id: rule for rule in run.rules}
    for result in run.results:
        rule = rules.get(result.ruleId, _SarifRule(id=result.ruleId))
        labelled: dict[str, str] = dict(_LABELLED.findall(f"{rule.help}\n{result.message}"))
        match = _CVE.match(result.ruleId)  # Grype's rules are called CVE-2026-1-package
        score = parse_score(str(rule.score))
        worded = parse_severity(labelled.get("Severity", ""))
        if worded == "unknown":
            worded = _LEVELS.get(result.level, "unknown") if score is None else severity_of_score(score)
        yield Vulnerability(
            id=match[0] if match else result.ruleId,
            package=labelled.get("Package", ""),
            installed=labelled.get("Installed Version", labelled.get("Version", "")),
            severity=worded,
            fixed_in=labelled.get("Fixed Version", labelled.get("Fix Version", "")),
        )


class _CycloneComponent(ReportPart):
    bom_ref: Text = Field(default="", alias="bom-ref")
    name: Text = ""
    version: Text = ""
    purl: Text = ""


class _CycloneRating(ReportPart):
    severity: Text = ""
    score: float | None = None
    vector: Text = ""

    @property
    def common(self) -> Severity:
        """Return the severity by its word, else by its score or its vector."""
        score = base_score(self.vector) if self.score is None else self.score
        return parse_severity(self.severity) if self.severity or score is None else severity_of_score(score)


class _CycloneAffect(ReportPart):
    ref: Text = ""


class _CycloneVulnerability(ReportPart):
    id: str
    ratings: Many[_CycloneRating] = ()
    recommendation: Text = ""
    published: Text = ""
    affects: Many[_CycloneAffect] = ()
    state: Text = path("analysis", "state")


class CycloneDx(ReportPart):
    """A CycloneDX VDR, as Trivy, Grype and Dependency-Track write it."""

    vulnerabilities: Many[_CycloneVulnerability]
    components: Many[_CycloneComponent] = ()
    finished: Text = path("metadata", "timestamp")
    tools: Any = path("metadata", "tools")
    subject: _CycloneComponent = path("metadata", "component", default=_CycloneComponent())

    def report(self) -> ScannerReport:
        """Return the scan as a ScannerReport."""
        components = (*self.components, self.subject)
        by_ref = {_without_version(component.purl): component for component in components if component.purl}
        by_ref |= {component.bom_ref: component for component in components if component.bom_ref}
        return ScannerReport(
            scanner=_tool(self.tools),
            vulnerabilities=tuple(v for entry in self.vulnerabilities for v in _cyclone(entry, by_ref)),
            finished=self.finished,
            digests=digests_in(self.subject.version, self.subject.purl.partition("?")[0].replace("%3A", ":")),
        )


# Source: CycloneDX 1.6, impactAnalysisState: what was analysed and does not apply.
_SETTLED = frozenset({"not_affected", "false_positive", "resolved", "resolved_with_pedigree"})


def _cyclone(entry: _CycloneVulnerability, by_ref: dict[str, _CycloneComponent]) -> Iterator[Vulnerability]:
    if entry.state in _SETTLED:
        return
    ratings = [rating.common for rating in entry.ratings]
    fixed = re.search(r"to version (\S.*)$", entry.recommendation)  # as Trivy writes it
    for affect in entry.affects or (_CycloneAffect(),):  # one that names no package still counts
        component = by_ref.get(affect.ref) or by_ref.get(_without_version(affect.ref))
        component = component or _CycloneComponent(name=affect.ref)
        yield Vulnerability(
            id=entry.id,
            package=component.name,
            installed=component.version,
            severity=min(ratings, key=SEVERITIES.index, default="unknown"),
            fixed_in=fixed[1] if fixed else "",
            ecosystem=purl_type(component.purl),
            published=parse_day(entry.published),
        )


def _without_version(purl: str) -> str:
    """Return a package's address without version and qualifiers, as OSV-Scanner names it."""
    return purl.partition("?")[0].partition("@")[0]


def _tool(tools: Any) -> str:
    """Return the first tool's name and version.

    It is in a list until CycloneDX 1.4, in components from 1.5 on.
    """
    listed = tools.get("components") if isinstance(tools, dict) else tools
    first_tool = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return f"{first_tool.get('name', 'CycloneDX')} {first_tool.get('version', '')}".strip()
