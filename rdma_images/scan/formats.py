"""The reports of Trivy, Grype and OSV-Scanner in their own forms, and advisories in the OSV schema.

Each model has the fields that are read of a format, under the format's own names; everything else is ignored. Sources:
aquasecurity/trivy pkg/types/report.go; anchore/grype grype/presenter/models; google/osv-scanner pkg/models/results.go;
ossf/osv-schema 1.7.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from packageurl import PackageURL
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rdma_images.scan.cvss import base_score
from rdma_images.scan.scan_result import Severity, Vulnerability, day, severity, severity_of_score

Item = TypeVar("Item")
# Go and Python write null for an empty list or text.
Many = Annotated[tuple[Item, ...], BeforeValidator(lambda value: () if value is None else value)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Section = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]


class ReportPart(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)


@dataclass(frozen=True)
class ScannerReport:
    """A report in the common form. `digests` and `layers` identify its image, as far as the report has them."""

    scanner: str
    vulnerabilities: tuple[Vulnerability, ...]
    finished: str = ""
    database: str = ""
    digests: frozenset[str] = frozenset()  # of the manifest or of the configuration
    layers: tuple[str, ...] = ()  # digests of the uncompressed layers, lowest first
    total: int | None = None  # vulnerabilities in all pages, where the format says it
    is_partial: bool = False  # another page follows


class _TrivyVulnerability(ReportPart):
    VulnerabilityID: str
    PkgName: str
    InstalledVersion: Text = ""
    FixedVersion: Text = ""
    Severity: Text = ""
    PublishedDate: Text = ""
    PkgIdentifier: Section = Field(default_factory=dict)


class _TrivyResult(ReportPart):
    Type: Text = ""
    Vulnerabilities: Many[_TrivyVulnerability] = ()


class _TrivyMetadata(ReportPart):
    ImageID: Text = ""
    DiffIDs: Many[str] = ()
    RepoDigests: Many[str] = ()


class Trivy(ReportPart):
    """`trivy image --format json`, schema version 2."""

    SchemaVersion: int
    Trivy: Section = Field(default_factory=dict)
    CreatedAt: Text = ""
    Metadata: _TrivyMetadata = _TrivyMetadata()
    Results: Many[_TrivyResult] = ()

    def report(self) -> ScannerReport:
        """Return it in the common form."""
        return ScannerReport(
            scanner=f"trivy {self.Trivy.get('Version', '')}".strip(),
            vulnerabilities=tuple(_trivy(entry, result) for result in self.Results for entry in result.Vulnerabilities),
            finished=self.CreatedAt,
            digests=digests_in(self.Metadata.ImageID, *self.Metadata.RepoDigests),
            layers=self.Metadata.DiffIDs,
        )


def _trivy(entry: _TrivyVulnerability, result: _TrivyResult) -> Vulnerability:
    return Vulnerability(
        id=entry.VulnerabilityID,
        package=entry.PkgName,
        installed=entry.InstalledVersion,
        severity=severity(entry.Severity),
        fixed_in=entry.FixedVersion,
        ecosystem=purl_type(str(entry.PkgIdentifier.get("PURL", ""))) or result.Type,
        published=day(entry.PublishedDate),
    )


class _GrypeFixDate(ReportPart):
    version: Text = ""
    date: Text = ""


class _GrypeFix(ReportPart):
    versions: Many[str] = ()
    state: Text = ""
    available: Many[_GrypeFixDate] = ()


class _GrypeVulnerability(ReportPart):
    id: str
    severity: Text = ""
    fix: _GrypeFix = _GrypeFix()


class _GrypeRelated(ReportPart):
    id: str


class _GrypeArtifact(ReportPart):
    name: str
    version: Text = ""
    type: Text = ""
    purl: Text = ""


class _GrypeMatch(ReportPart):
    vulnerability: _GrypeVulnerability
    relatedVulnerabilities: Many[_GrypeRelated] = ()
    artifact: _GrypeArtifact


class _GrypeLayer(ReportPart):
    digest: Text = ""


class _GrypeTarget(ReportPart):
    imageID: Text = ""
    manifestDigest: Text = ""
    repoDigests: Many[str] = ()
    layers: Many[_GrypeLayer] = ()


class _GrypeSource(ReportPart):
    target: _GrypeTarget | str = ""


class _GrypeDescriptor(ReportPart):
    name: Text = ""
    version: Text = ""
    timestamp: Text = ""
    db: Section = Field(default_factory=dict)


class Grype(ReportPart):
    """`grype --output json`."""

    matches: Many[_GrypeMatch]
    source: _GrypeSource = _GrypeSource()
    descriptor: _GrypeDescriptor = _GrypeDescriptor()

    def report(self) -> ScannerReport:
        """Return it in the common form."""
        target = self.source.target if isinstance(self.source.target, _GrypeTarget) else _GrypeTarget()
        status = self.descriptor.db.get("status")
        built = (status if isinstance(status, dict) else self.descriptor.db).get("built")
        return ScannerReport(
            scanner=f"grype {self.descriptor.version}".strip(),
            vulnerabilities=tuple(map(_grype, self.matches)),
            finished=self.descriptor.timestamp,
            database=day(built if isinstance(built, str) else ""),
            digests=digests_in(target.imageID, target.manifestDigest, *target.repoDigests),
            layers=tuple(layer.digest for layer in target.layers),
        )


def _grype(match: _GrypeMatch) -> Vulnerability:
    fix = match.vulnerability.fix
    return Vulnerability(
        id=match.vulnerability.id,
        package=match.artifact.name,
        installed=match.artifact.version,
        severity=severity(match.vulnerability.severity),
        fixed_in=", ".join(fix.versions),
        ecosystem=purl_type(match.artifact.purl) or match.artifact.type,
        published=min((day(release.date) for release in fix.available if day(release.date)), default=""),
        aliases=tuple(related.id for related in match.relatedVulnerabilities),
    )


class OsvEvent(ReportPart):
    """One event of a range: where a vulnerability begins or ends."""

    introduced: Text = ""
    fixed: Text = ""
    last_affected: Text = ""


class OsvRange(ReportPart):
    """The versions between events."""

    type: Text = ""
    events: Many[OsvEvent] = ()


class OsvPackage(ReportPart):
    """A package by its ecosystem."""

    name: Text = ""
    ecosystem: Text = ""
    version: Text = ""


class OsvAffected(ReportPart):
    """The affected versions of one package."""

    package: OsvPackage = OsvPackage()
    ranges: Many[OsvRange] = ()
    versions: Many[str] = ()


class OsvRating(ReportPart):
    """A CVSS vector, or a word."""

    type: Text = ""
    score: Text = ""


class OsvAdvisory(ReportPart):
    """An advisory in the OSV schema, ossf/osv-schema 1.7."""

    id: str
    published: Text = ""
    withdrawn: Text = ""
    aliases: Many[str] = ()
    affected: Many[OsvAffected] = ()
    severity: Many[OsvRating] = ()
    database_specific: Section = Field(default_factory=dict)

    @property
    def rated(self) -> Severity:
        """The severity in the database's own word, else of its CVSS 3 vector; "unknown" where it has neither."""
        scores = [score for rating in self.severity if (score := base_score(rating.score)) is not None]
        word = severity(str(self.database_specific.get("severity", "")))
        return severity_of_score(max(scores)) if word == "unknown" and scores else word


class _OsvGroup(ReportPart):
    ids: Many[str] = ()
    max_severity: Text = ""


class _OsvFinding(ReportPart):
    package: OsvPackage
    vulnerabilities: Many[OsvAdvisory] = ()
    groups: Many[_OsvGroup] = ()


class _OsvSource(ReportPart):
    packages: Many[_OsvFinding] = ()


class _OsvLayer(ReportPart):
    diff_id: Text = ""
    is_empty: bool = False


class _OsvImage(ReportPart):
    layer_metadata: Many[_OsvLayer] = ()


class OsvScanner(ReportPart):
    """`osv-scanner scan image --format json`."""

    results: Many[_OsvSource]
    image_metadata: _OsvImage | None = None

    def report(self) -> ScannerReport:
        """Return it in the common form."""
        findings = [finding for source in self.results for finding in source.packages]
        layers = self.image_metadata.layer_metadata if self.image_metadata else ()
        return ScannerReport(
            scanner="osv-scanner",
            vulnerabilities=tuple(vulnerability for finding in findings for vulnerability in _osv(finding)),
            layers=tuple(layer.diff_id for layer in layers if layer.diff_id and not layer.is_empty),
        )


def _osv(finding: _OsvFinding) -> Iterator[Vulnerability]:
    scores = {name: group.max_severity for group in finding.groups for name in group.ids}
    for advisory in finding.vulnerabilities:
        if advisory.withdrawn:
            continue
        score = parse_score(scores.get(advisory.id, ""))
        fixes = [
            event.fixed
            for affected in advisory.affected
            if affected.package.name == finding.package.name
            for versions in affected.ranges
            if versions.type != "GIT"
            for event in versions.events
            if event.fixed
        ]
        yield Vulnerability(
            id=advisory.id,
            package=finding.package.name,
            installed=finding.package.version,
            severity=severity_of_score(score) if score is not None else advisory.rated,
            fixed_in=", ".join(dict.fromkeys(fixes)),
            ecosystem=osv_ecosystem(finding.package.ecosystem),
            published=day(advisory.published),
            aliases=advisory.aliases,
        )


def osv_ecosystem(name: str) -> str:
    """Return what package URLs call an ecosystem of OSV: "deb" for "Debian:13"."""
    family = name.partition(":")[0].lower()
    return {"debian": "deb", "ubuntu": "deb", "red hat": "rpm", "go": "golang", "crates.io": "cargo"}.get(
        family, family
    )


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digests_in(*texts: str) -> frozenset[str]:
    """Return the digests in texts, as in repository@sha256:… of a reference."""
    return frozenset(digest for text in texts for digest in _DIGEST.findall(text))


def strings(value: object) -> list[str]:
    """Return the texts in a list; none of what is no list."""
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def parse_score(text: str) -> float | None:
    """Return a CVSS score; None for what is no number."""
    try:
        return float(text)
    except ValueError:
        return None


def purl_type(purl: str) -> str:
    """Return the type of a package URL, "deb" or "pypi"; "" for what is none."""
    try:
        return PackageURL.from_string(purl).type
    except ValueError:
        return ""
