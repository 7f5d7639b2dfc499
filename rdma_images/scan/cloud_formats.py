"""The reports of registries: Amazon ECR (basic scanning, and Inspector's) and Alibaba Cloud Container Registry.

Sources: the service model of boto3's ECR client, DescribeImageScanFindings; alibabacloud_cr20181201,
ListRepoTagScanResult.
"""

from collections.abc import Iterator
from typing import Any

from rdma_images.scan.formats import Many, ReportPart, ScannerReport, Text, path
from rdma_images.scan.scan_result import Vulnerability, parse_day, parse_severity, parse_time

Time = str | float | None


class _EcrAttribute(ReportPart):
    key: Text = ""
    value: Text = ""


class _EcrFinding(ReportPart):
    name: str
    severity: Text = ""
    attributes: Many[_EcrAttribute] = ()


class _InspectorPackage(ReportPart):
    name: Text = ""
    version: Text = ""
    release: Text = ""
    epoch: int | None = None
    packageManager: Text = ""
    fixedInVersion: Text = ""


class _InspectorFinding(ReportPart):
    severity: Text = ""
    status: Text = ""
    id: Text = path("packageVulnerabilityDetails", "vulnerabilityId")
    aliases: Many[str] = path("packageVulnerabilityDetails", "relatedVulnerabilities", default=())
    published: Time = path("packageVulnerabilityDetails", "vendorCreatedAt", default=None)
    packages: Many[_InspectorPackage] = path("packageVulnerabilityDetails", "vulnerablePackages", default=())


class EcrFindings(ReportPart):
    """`aws ecr describe-image-scan-findings --output json`."""

    digest: Any = path("imageId", "imageDigest")
    status: Text = path("imageScanStatus", "status")
    description: Text = path("imageScanStatus", "description")
    imageScanFindings: dict[str, Any] | None = None
    finished: Time = path("imageScanFindings", "imageScanCompletedAt", default=None)
    database: Time = path("imageScanFindings", "vulnerabilitySourceUpdatedAt", default=None)
    findings: Many[_EcrFinding] = path("imageScanFindings", "findings", default=())
    enhanced: Many[_InspectorFinding] = path("imageScanFindings", "enhancedFindings", default=())
    nextToken: Text = ""

    def report(self) -> ScannerReport:
        """Return the scan as a ScannerReport.

        Raises ValueError for a scan that has not ended, or not well.
        """
        if self.imageScanFindings is None or self.status not in ("", "COMPLETE", "ACTIVE"):
            raise ValueError(f"ECR's scan is {self.status or 'without findings'}: {self.description or 'no reason'}")
        finished = parse_time(self.finished)
        return ScannerReport(
            scanner="Amazon Inspector" if self.enhanced else "Amazon ECR",
            vulnerabilities=(*map(_ecr, self.findings), *_inspector(self.enhanced)),
            finished=finished.isoformat() if finished else "",
            database=parse_day(self.database),
            digests=frozenset({str(self.digest)} if self.digest else ()),
            is_partial=bool(self.nextToken),
        )


def _ecr(finding: _EcrFinding) -> Vulnerability:
    attributes = {attribute.key: attribute.value for attribute in finding.attributes}
    return Vulnerability(
        id=finding.name,
        package=attributes.get("package_name", ""),
        installed=attributes.get("package_version", ""),
        severity=parse_severity(finding.severity),
        fixed_in=attributes.get("fixed_in_versions", attributes.get("patched_versions", "")),
        aliases=tuple(filter(None, attributes.get("cve", "").replace(",", " ").split())),
    )


# Source: Amazon Inspector's API, PackageManager; as package URLs call them.
_MANAGERS = {"os": "deb", "pip": "pypi", "pipenv": "pypi", "pythonpkg": "pypi", "poetry": "pypi", "nodepkg": "npm"}


def _inspector(findings: tuple[_InspectorFinding, ...]) -> Iterator[Vulnerability]:
    for finding in findings:
        if finding.status.upper() in ("CLOSED", "SUPPRESSED"):
            continue
        for package in finding.packages:
            epoch = f"{package.epoch}:" if package.epoch else ""
            fixed = package.fixedInVersion
            yield Vulnerability(
                id=finding.id,
                package=package.name,
                installed=f"{epoch}{package.version}{f'-{package.release}' if package.release else ''}",
                severity=parse_severity(finding.severity),
                fixed_in="" if fixed == "NotAvailable" else fixed,
                ecosystem=_MANAGERS.get(package.packageManager.lower(), package.packageManager.lower()),
                published=parse_day(finding.published),
                aliases=finding.aliases,
            )


class _AcrVulnerability(ReportPart):
    CveName: Text = ""
    AliasName: Text = ""
    Feature: Text = ""
    Version: Text = ""
    VersionFixed: Text = ""
    VersionFormat: Text = ""
    Severity: Text = ""


class AcrPage(ReportPart):
    """One page of ListRepoTagScanResult, or the `body` in which Alibaba's SDKs have it."""

    Vulnerabilities: Many[_AcrVulnerability]
    TotalCount: int | None = None

    def report(self) -> ScannerReport:
        """Return the scan as a ScannerReport."""
        return ScannerReport(
            scanner="Alibaba Cloud ACR",
            vulnerabilities=tuple(map(_acr, self.Vulnerabilities)),
            total=self.TotalCount,
        )


def _acr(entry: _AcrVulnerability) -> Vulnerability:
    return Vulnerability(
        id=entry.CveName or entry.AliasName,
        package=entry.Feature,
        installed=entry.Version,
        severity=parse_severity(entry.Severity),
        fixed_in=entry.VersionFixed,
        ecosystem={"dpkg": "deb"}.get(entry.VersionFormat.lower(), entry.VersionFormat.lower()),
    )


def is_acr(document: dict[str, Any]) -> bool:
    """Return whether a document is a page of ACR's."""
    return isinstance(document.get("Vulnerabilities"), list) and bool({"TotalCount", "RequestId"} & document.keys())
