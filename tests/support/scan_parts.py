"""Small scanner reports in each tool's form, with a Debian and a wheel vulnerability."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rdma_images.scan.read_reports import ScannedImage

DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
LAYERS = (f"sha256:{'1' * 64}", f"sha256:{'2' * 64}")
SUBJECT = ScannedImage("rdma-images/efa-pytorch:1", DIGEST, LAYERS)
TIME = "2026-11-20T03:17:00Z"


def trivy(digest: str = DIGEST) -> dict[str, Any]:
    return {
        "SchemaVersion": 2,
        "Trivy": {"Version": "0.74.0"},
        "CreatedAt": "2026-11-20T03:17:00.000000005Z",
        "ArtifactName": "rdma-images/efa-pytorch:1",
        "Metadata": {"ImageID": f"sha256:{'c' * 64}", "DiffIDs": None, "RepoDigests": [f"h.example/a@{digest}"]},
        "Results": [
            {"Target": "debian", "Class": "os-pkgs", "Type": "debian", "Vulnerabilities": [_trivy_debian()]},
            {"Target": "Python", "Class": "lang-pkgs", "Type": "python-pkg", "Vulnerabilities": [_trivy_python()]},
            {"Target": "clean", "Class": "lang-pkgs", "Type": "gobinary"},
        ],
    }


def _trivy_debian() -> dict[str, Any]:
    return {
        "VulnerabilityID": "CVE-2026-1001",
        "PkgName": "libexample1",
        "PkgIdentifier": {"PURL": "pkg:deb/debian/libexample1@1.0-1?arch=amd64&distro=debian-13"},
        "InstalledVersion": "1.0-1",
        "FixedVersion": "1.0-1+deb13u1",
        "Severity": "CRITICAL",
        "PublishedDate": "2026-10-01T10:15:00Z",
    }


def _trivy_python() -> dict[str, Any]:
    return {
        "VulnerabilityID": "CVE-2026-1002",
        "PkgName": "examplelib",
        "InstalledVersion": "1.0",
        "Severity": "MEDIUM",
    }


def grype(digest: str = DIGEST) -> dict[str, Any]:
    fix = {"versions": ["1.0-1+deb13u1"], "state": "fixed", "available": [{"version": "x", "date": "2026-10-01"}]}
    return {
        "matches": [
            {
                "vulnerability": {"id": "CVE-2026-1001", "severity": "Critical", "fix": fix},
                "relatedVulnerabilities": [],
                "artifact": {"name": "libexample1", "version": "1.0-1", "purl": "pkg:deb/debian/libexample1@1.0-1"},
            },
            {
                "vulnerability": {
                    "id": "GHSA-aaaa-bbbb-cccc",
                    "severity": "Medium",
                    "fix": {"versions": [], "state": ""},
                },
                "relatedVulnerabilities": [{"id": "CVE-2026-1002"}],
                "artifact": {
                    "name": "examplelib",
                    "version": "1.0",
                    "type": "python",
                    "purl": "pkg:pypi/examplelib@1.0",
                },
            },
        ],
        "source": {"type": "image", "target": {"manifestDigest": digest, "repoDigests": [], "layers": []}},
        "descriptor": {
            "name": "grype",
            "version": "0.121.2",
            "timestamp": TIME,
            "db": {"status": {"built": "2026-11-19T00:00:00Z"}},
        },
    }


def osv_scanner() -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.0-1+deb13u1"}]}]
    debian = {"name": "libexample1", "ecosystem": "Debian:13"}
    wheel = {"name": "examplelib", "ecosystem": "PyPI"}
    return {
        "results": [
            {
                "packages": [
                    {
                        "package": debian | {"version": "1.0-1"},
                        "vulnerabilities": [
                            {
                                "id": "DEBIAN-CVE-2026-1001",
                                "aliases": ["CVE-2026-1001"],
                                "published": "2026-10-01T00:00:00Z",
                                "affected": [{"package": debian, "ranges": ranges}],
                            }
                        ],
                        "groups": [{"ids": ["DEBIAN-CVE-2026-1001"], "max_severity": "9.8"}],
                    },
                    {
                        "package": wheel | {"version": "1.0"},
                        "vulnerabilities": [
                            {"id": "CVE-2026-1002", "database_specific": {"severity": "MODERATE"}, "affected": []}
                        ],
                        "groups": [{"ids": ["CVE-2026-1002"], "max_severity": ""}],
                    },
                ]
            }
        ],
        "image_metadata": {"layer_metadata": [{"diff_id": layer, "is_empty": False} for layer in LAYERS]},
    }


def sarif(digest: str = DIGEST) -> dict[str, Any]:
    text = "Package: libexample1\nInstalled Version: 1.0-1\nSeverity: CRITICAL\nFixed Version: 1.0-1+deb13u1"
    rules = [
        {"id": "CVE-2026-1001", "properties": {"security-severity": "9.8"}},
        {"id": "CVE-2026-1002-examplelib", "help": {"text": "Package: examplelib\nVersion: 1.0\nFix Version: "}},
    ]
    return {
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "Trivy", "version": "0.74.0", "rules": rules}},
                "results": [
                    {"ruleId": "CVE-2026-1001", "level": "error", "message": {"text": text}},
                    {"ruleId": "CVE-2026-1002-examplelib", "level": "warning", "message": {"text": "medium"}},
                ],
                "properties": {"repoDigests": [f"h.example/a@{digest}"], "imageID": ""},
            }
        ],
    }


def cyclonedx(digest: str = DIGEST) -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {
            "timestamp": TIME,
            "tools": {"components": [{"name": "grype", "version": "0.121.2"}]},
            "component": {"bom-ref": "image", "name": "efa-pytorch", "version": digest},
        },
        "components": [
            {"bom-ref": "1", "name": "libexample1", "version": "1.0-1", "purl": "pkg:deb/debian/libexample1@1.0-1"},
            {"bom-ref": "2", "name": "examplelib", "version": "1.0", "purl": "pkg:pypi/examplelib@1.0"},
        ],
        "vulnerabilities": [
            {
                "id": "CVE-2026-1001",
                "ratings": [{"severity": "high"}, {"severity": "critical", "score": 9.8, "method": "CVSSv31"}],
                "recommendation": "Upgrade libexample1 to version 1.0-1+deb13u1",
                "published": "2026-10-01T00:00:00Z",
                "affects": [{"ref": "1"}],
            },
            {"id": "CVE-2026-1002", "ratings": [{"severity": "medium"}], "affects": [{"ref": "2"}]},
            {"id": "CVE-2026-1003", "affects": [{"ref": "2"}], "analysis": {"state": "not_affected"}},
        ],
    }


def ecr_basic(digest: str = DIGEST) -> dict[str, Any]:
    def finding(cve: str, severity: str, package: str, version: str) -> dict[str, Any]:
        pairs = {"package_name": package, "package_version": version}
        return {
            "name": cve,
            "severity": severity,
            "attributes": [{"key": key, "value": value} for key, value in pairs.items()],
        }

    return {
        "imageId": {"imageDigest": digest},
        "imageScanStatus": {"status": "COMPLETE"},
        "imageScanFindings": {
            "imageScanCompletedAt": "2026-11-20T04:17:00+01:00",
            "vulnerabilitySourceUpdatedAt": "2026-11-19T00:00:00+00:00",
            "findings": [
                finding("CVE-2026-1001", "CRITICAL", "libexample1", "1.0-1"),
                finding("CVE-2026-1002", "MEDIUM", "examplelib", "1.0"),
            ],
        },
    }


def inspector(digest: str = DIGEST) -> dict[str, Any]:
    debian = {"name": "libexample1", "version": "1.0", "release": "1", "epoch": 0, "packageManager": "OS"}
    wheel = {"name": "examplelib", "version": "1.0", "packageManager": "PYTHONPKG", "fixedInVersion": "NotAvailable"}
    body = ecr_basic(digest)
    details: list[dict[str, Any]] = [
        {
            "vulnerabilityId": "CVE-2026-1001",
            "vendorCreatedAt": 1790812800.0,
            "vulnerablePackages": [debian | {"fixedInVersion": "1.0-1+deb13u1"}],
        },
        {"vulnerabilityId": "CVE-2026-1002", "vulnerablePackages": [wheel]},
    ]
    body["imageScanStatus"] = {"status": "ACTIVE"}
    body["imageScanFindings"] = {
        "imageScanCompletedAt": "2026-11-20T03:17:00+00:00",
        "enhancedFindings": [
            {"severity": severity, "status": "ACTIVE", "packageVulnerabilityDetails": detail}
            for severity, detail in zip(("CRITICAL", "MEDIUM"), details, strict=True)
        ],
    }
    return body


def acr() -> dict[str, Any]:
    def entry(cve: str, severity: str, package: str, version: str, fixed: str) -> dict[str, Any]:
        return {"CveName": cve, "Severity": severity, "Feature": package, "Version": version, "VersionFixed": fixed}

    return {
        "statusCode": 200,
        "body": {
            "Code": "success",
            "TotalCount": 2,
            "Vulnerabilities": [
                entry("CVE-2026-1001", "High", "libexample1", "1.0-1", "1.0-1+deb13u1") | {"VersionFormat": "dpkg"},
                entry("CVE-2026-1002", "Medium", "examplelib", "1.0", ""),
            ],
        },
    }


def write_report(folder: Path, document: Mapping[str, Any], name: str = "report.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
