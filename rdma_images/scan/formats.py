"""The reports of Trivy and Grype in their own forms.

Each model has the fields that are read of a format, under the format's own names; everything else is ignored. Sources:
aquasecurity/trivy pkg/types/report.go; anchore/grype grype/presenter/models.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from packageurl import PackageURL
from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from rdma_images.scan.scan_result import Vulnerability, parse_day, parse_severity

Item = TypeVar("Item")
# Go and Python write null for an empty list or text.
Many = Annotated[tuple[Item, ...], BeforeValidator(lambda value: () if value is None else value)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class ReportPart(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)


def path(*steps: str, default: Any = "") -> Any:
    """Return the field that is at `steps` in the document, `default` where it is not there."""
    return Field(default=default, validation_alias=AliasPath(*steps))


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


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digests_in(*texts: str) -> frozenset[str]:
    """Return the digests in texts, as in repository@sha256:… of a reference."""
    return frozenset(digest for text in texts for digest in _DIGEST.findall(text))


def purl_type(purl: str) -> str:
    """Return the type of a package URL, "deb" or "pypi"; "" for what is none."""
    try:
        return PackageURL.from_string(purl).type
    except ValueError:
        return ""
