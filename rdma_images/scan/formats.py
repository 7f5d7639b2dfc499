"""The reports of Trivy, Grype and OSV-Scanner in their own forms, and advisories in the OSV schema.

Each model has the fields that are read of a format, under the format's own names; everything else is ignored. Sources:
aquasecurity/trivy pkg/types/report.go; anchore/grype grype/presenter/models; google/osv-scanner pkg/models/results.go;
ossf/osv-schema 1.7.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from packageurl import PackageURL
from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from rdma_images.scan.scan_result import Severity, Vulnerability, parse_day, parse_severity, severity_of_score

Item = TypeVar("Item")
# Go and Python write null for an empty list or text.
Many = Annotated[tuple[Item, ...], BeforeValidator(lambda value: () if value is None else value)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Section = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]
# Of the base score of a CVSS 3 vector. Source: first.org, CVSS v3.1 specification, sections 7.1, 7.4 and appendix A.
_WEIGHTS = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "UI": {"N": 0.85, "R": 0.62},
    "C": {"H": 0.56, "L": 0.22, "N": 0.0},
    "I": {"H": 0.56, "L": 0.22, "N": 0.0},
    "A": {"H": 0.56, "L": 0.22, "N": 0.0},
}
_PRIVILEGES = {False: {"N": 0.85, "L": 0.62, "H": 0.27}, True: {"N": 0.85, "L": 0.68, "H": 0.5}}


class ReportPart(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)


def path(*steps: str, default: Any = "") -> Any:
    """Return the field that is at `steps` in the document, `default` where it is not there."""
    return Field(default=default, validation_alias=AliasPath(*steps))


@dataclass(frozen=True)
class ScannerReport:
    """A report in the common form; `digests` and `layers` identify its image."""

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
    purl: Text = path("PkgIdentifier", "PURL")


class _TrivyResult(ReportPart):
    Type: Text = ""
    Vulnerabilities: Many[_TrivyVulnerability] = ()


class Trivy(ReportPart):
    """`trivy image --format json`, schema version 2."""

    SchemaVersion: int
    version: Text = path("Trivy", "Version")
    CreatedAt: Text = ""
    image_id: Text = path("Metadata", "ImageID")
    layers: Many[str] = path("Metadata", "DiffIDs", default=())
    repository_digests: Many[str] = path("Metadata", "RepoDigests", default=())
    Results: Many[_TrivyResult] = ()

    def report(self) -> ScannerReport:
        """Return the scan as a ScannerReport."""
        return ScannerReport(
            scanner=f"trivy {self.version}".strip(),
            vulnerabilities=tuple(_trivy(entry, result) for result in self.Results for entry in result.Vulnerabilities),
            finished=self.CreatedAt,
            digests=digests_in(self.image_id, *self.repository_digests),
            layers=self.layers,
        )


def _trivy(entry: _TrivyVulnerability, result: _TrivyResult) -> Vulnerability:
    return Vulnerability(
        id=entry.VulnerabilityID,
        package=entry.PkgName,
        installed=entry.InstalledVersion,
        severity=parse_severity(entry.Severity),
        fixed_in=entry.FixedVersion,
        ecosystem=purl_type(entry.purl) or result.Type,
        published=parse_day(entry.PublishedDate),
    )


class _GrypeFixDate(ReportPart):
    date: Text = ""


class _GrypeRelated(ReportPart):
    id: str


class _GrypeMatch(ReportPart):
    id: str = Field(validation_alias=AliasPath("vulnerability", "id"))
    severity: Text = path("vulnerability", "severity")
    fixes: Many[str] = path("vulnerability", "fix", "versions", default=())
    fix_dates: Many[_GrypeFixDate] = path("vulnerability", "fix", "available", default=())
    relatedVulnerabilities: Many[_GrypeRelated] = ()
    package: str = Field(validation_alias=AliasPath("artifact", "name"))
    version: Text = path("artifact", "version")
    type: Text = path("artifact", "type")
    purl: Text = path("artifact", "purl")


class _GrypeLayer(ReportPart):
    digest: Text = ""


class Grype(ReportPart):
    """`grype --output json`."""

    matches: Many[_GrypeMatch]
    image_id: Text = path("source", "target", "imageID")
    digest: Text = path("source", "target", "manifestDigest")
    repository_digests: Many[str] = path("source", "target", "repoDigests", default=())
    layers: Many[_GrypeLayer] = path("source", "target", "layers", default=())
    version: Text = path("descriptor", "version")
    finished: Text = path("descriptor", "timestamp")
    database: Any = Field(
        default="",
        validation_alias=AliasChoices(
            AliasPath("descriptor", "db", "status", "built"), AliasPath("descriptor", "db", "built")
        ),
    )

    def report(self) -> ScannerReport:
        """Return the scan as a ScannerReport."""
        return ScannerReport(
            scanner=f"grype {self.version}".strip(),
            vulnerabilities=tuple(map(_grype, self.matches)),
            finished=self.finished,
            database=parse_day(self.database if isinstance(self.database, str) else ""),
            digests=digests_in(self.image_id, self.digest, *self.repository_digests),
            layers=tuple(layer.digest for layer in self.layers),
        )


def _grype(match: _GrypeMatch) -> Vulnerability:
    return Vulnerability(
        id=match.id,
        package=match.package,
        installed=match.version,
        severity=parse_severity(match.severity),
        fixed_in=", ".join(match.fixes),
        ecosystem=purl_type(match.purl) or match.type,
        published=min((parse_day(fix.date) for fix in match.fix_dates if parse_day(fix.date)), default=""),
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

    score: Text = ""


class OsvAdvisory(ReportPart):
    """An advisory in the OSV schema, ossf/osv-schema 1.7."""

    id: str
    published: Text = ""
    withdrawn: Text = ""
    aliases: Many[str] = ()
    affected: Many[OsvAffected] = ()
    severity: Many[OsvRating] = ()
    worded: Any = path("database_specific", "severity")

    @property
    def rated(self) -> Severity:
        """Return the severity by the database's word, else by its CVSS 3 vector."""
        scores = [score for rating in self.severity if (score := base_score(rating.score)) is not None]
        word = parse_severity(str(self.worded))
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


class OsvScanner(ReportPart):
    """`osv-scanner scan image --format json`."""

    results: Many[_OsvSource]
    layers: Many[_OsvLayer] = path("image_metadata", "layer_metadata", default=())

    def report(self) -> ScannerReport:
        """Return the scan as a ScannerReport."""
        findings = [finding for source in self.results for finding in source.packages]
        return ScannerReport(
            scanner="osv-scanner",
            vulnerabilities=tuple(vulnerability for finding in findings for vulnerability in _osv(finding)),
            layers=tuple(layer.diff_id for layer in self.layers if layer.diff_id and not layer.is_empty),
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
            published=parse_day(advisory.published),
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


def base_score(vector: str) -> float | None:
    """Return the base score of a vector of CVSS 3.0 or 3.1; None for any other text."""
    head, *metrics = vector.strip().split("/")
    values = dict(metric.partition(":")[::2] for metric in metrics)
    if head not in ("CVSS:3.0", "CVSS:3.1"):
        return None
    try:
        weight = {name: weights[values[name]] for name, weights in _WEIGHTS.items()}
        scope_changed = {"U": False, "C": True}[values["S"]]
        privileges = _PRIVILEGES[scope_changed][values["PR"]]
    except KeyError:
        return None
    iss = 1 - (1 - weight["C"]) * (1 - weight["I"]) * (1 - weight["A"])
    impact = 7.52 * (iss - 0.029) - 3.25 * (iss - 0.02) ** 15 if scope_changed else 6.42 * iss
    if impact <= 0:
        return 0.0
    exploitability = 8.22 * weight["AV"] * weight["AC"] * privileges * weight["UI"]
    return _round_up(min((1.08 if scope_changed else 1.0) * (impact + exploitability), 10))


def _round_up(value: float) -> float:
    """Return the value rounded up to one decimal, as appendix A does it."""
    hundred_thousandths = round(value * 100_000)
    if hundred_thousandths % 10_000 == 0:
        return hundred_thousandths / 100_000
    return (math.floor(hundred_thousandths / 10_000) + 1) / 10
