"""Reports in the forms that many scanners write: SARIF 2.1.0, and CycloneDX with vulnerabilities."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from rdma_images.scan.cvss import base_score
from rdma_images.scan.formats import (
    Many,
    ReportPart,
    ScannerReport,
    Section,
    Text,
    digests_in,
    parse_score,
    purl_type,
    strings,
)
from rdma_images.scan.scan_result import SEVERITIES, Severity, Vulnerability, day, severity, severity_of_score


class _SarifText(ReportPart):
    text: Text = ""


class _SarifRule(ReportPart):
    id: str
    help: _SarifText = _SarifText()
    properties: Section = Field(default_factory=dict)


class _SarifDriver(ReportPart):
    name: Text = ""
    version: Text = ""
    rules: Many[_SarifRule] = ()


class _SarifTool(ReportPart):
    driver: _SarifDriver


class _SarifResult(ReportPart):
    ruleId: Text = ""
    level: Text = ""
    message: _SarifText = _SarifText()


class _SarifInvocation(ReportPart):
    endTimeUtc: Text = ""


class _SarifRun(ReportPart):
    tool: _SarifTool
    results: Many[_SarifResult] = ()
    invocations: Many[_SarifInvocation] = ()
    properties: Section = Field(default_factory=dict)


class Sarif(ReportPart):
    """SARIF 2.1.0, with the lines `Package:`, `Installed Version:` and `Fixed Version:` that Trivy and Grype write."""

    version: str
    runs: Many[_SarifRun]

    def report(self) -> ScannerReport:
        """Return it in the common form."""
        names = [f"{run.tool.driver.name} {run.tool.driver.version}".strip() for run in self.runs]
        properties = [run.properties for run in self.runs]
        repository_digests = [digest for entry in properties for digest in strings(entry.get("repoDigests"))]
        ends = [invocation.endTimeUtc for run in self.runs for invocation in run.invocations]
        return ScannerReport(
            scanner=", ".join(dict.fromkeys(filter(None, names))) or "SARIF",
            vulnerabilities=tuple(vulnerability for run in self.runs for vulnerability in _sarif(run)),
            finished=max(ends, default=""),
            digests=digests_in(*(str(entry.get("imageID", "")) for entry in properties), *repository_digests),
        )


_LABELLED = re.compile(r"^(Package|Installed Version|Version|Fixed Version|Fix Version|Severity): *(.*)$", re.MULTILINE)
_LEVELS: dict[str, Severity] = {"error": "high", "warning": "medium", "note": "low", "none": "negligible"}
_CVE = re.compile(r"(?:CVE-\d{4}-\d{4,}|GHSA(?:-[a-z0-9]{4}){3}|[A-Z]+-\d{4}-\d+)")


def _sarif(run: _SarifRun) -> Iterator[Vulnerability]:
    rules = {rule.id: rule for rule in run.tool.driver.rules}
    for result in run.results:
        rule = rules.get(result.ruleId, _SarifRule(id=result.ruleId))
        labelled: dict[str, str] = dict(_LABELLED.findall(f"{rule.help.text}\n{result.message.text}"))
        match = _CVE.match(result.ruleId)  # Grype's rules are called CVE-2026-1-package
        score = parse_score(str(rule.properties.get("security-severity", "")))
        worded = severity(labelled.get("Severity", ""))
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
        """The severity by its word, else by its score or its vector."""
        score = base_score(self.vector) if self.score is None else self.score
        return severity(self.severity) if self.severity or score is None else severity_of_score(score)


class _CycloneAffect(ReportPart):
    ref: Text = ""


class _CycloneAnalysis(ReportPart):
    state: Text = ""


class _CycloneVulnerability(ReportPart):
    id: str
    ratings: Many[_CycloneRating] = ()
    recommendation: Text = ""
    published: Text = ""
    affects: Many[_CycloneAffect] = ()
    analysis: _CycloneAnalysis = _CycloneAnalysis()


class _CycloneMetadata(ReportPart):
    timestamp: Text = ""
    tools: Any = None
    component: _CycloneComponent = _CycloneComponent()


class CycloneDx(ReportPart):
    """A CycloneDX document with vulnerabilities: a VDR, as Trivy, Grype and Dependency-Track write it."""

    vulnerabilities: Many[_CycloneVulnerability]
    components: Many[_CycloneComponent] = ()
    metadata: _CycloneMetadata = _CycloneMetadata()

    def report(self) -> ScannerReport:
        """Return it in the common form."""
        subject = self.metadata.component
        components = (*self.components, subject)
        by_ref = {_without_version(component.purl): component for component in components if component.purl}
        by_ref |= {component.bom_ref: component for component in components if component.bom_ref}
        return ScannerReport(
            scanner=_tool(self.metadata.tools),
            vulnerabilities=tuple(v for entry in self.vulnerabilities for v in _cyclone(entry, by_ref)),
            finished=self.metadata.timestamp,
            digests=digests_in(subject.version, subject.purl.partition("?")[0].replace("%3A", ":")),
        )


# Source: CycloneDX 1.6, impactAnalysisState: what was analysed and does not apply.
_SETTLED = frozenset({"not_affected", "false_positive", "resolved", "resolved_with_pedigree"})


def _cyclone(entry: _CycloneVulnerability, by_ref: dict[str, _CycloneComponent]) -> Iterator[Vulnerability]:
    if entry.analysis.state in _SETTLED:
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
            published=day(entry.published),
        )


def _without_version(purl: str) -> str:
    """Return a package's address without version and qualifiers, as OSV-Scanner names it."""
    return purl.partition("?")[0].partition("@")[0]


def _tool(tools: Any) -> str:
    """Return the first tool's name and version: a list until CycloneDX 1.4, components from 1.5 on."""
    listed = tools.get("components") if isinstance(tools, dict) else tools
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return f"{first.get('name', 'CycloneDX')} {first.get('version', '')}".strip()
