"""Small CycloneDX documents as Trivy and Grype write them: a Debian and a wheel vulnerability."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rdma_images.publish.evidence.scanner import ScannedImage

DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
IMAGE = ScannedImage("rdma-images/efa-pytorch:1", DIGEST)
TIME = "2026-11-20T03:17:00Z"
DEBIAN = {"bom-ref": "1", "name": "libexample1", "version": "1.0-1", "purl": "pkg:deb/debian/libexample1@1.0-1"}
WHEEL = {"bom-ref": "2", "name": "examplelib", "version": "1.0", "purl": "pkg:pypi/examplelib@1.0"}


def trivy(digest: str = DIGEST) -> dict[str, Any]:
    fixed = {
        "ratings": [{"source": {"name": "nvd"}, "severity": "high"}, {"severity": "critical", "score": 9.8}],
        "recommendation": "Upgrade libexample1 to version 1.0-1+deb13u1",
        "published": "2026-10-01T10:15:00+00:00",
        "affects": [{"ref": "1", "versions": [{"version": "1.0-1", "status": "affected"}]}],
    }
    properties = {"ImageID": f"sha256:{'c' * 64}", "DiffID": OTHER, "RepoDigest": f"h.example/a@{digest}"}
    image = {
        "name": "rdma-images/efa-pytorch:1",
        "properties": [{"name": f"aquasecurity:trivy:{name}", "value": value} for name, value in properties.items()],
    }
    return _document("trivy", "0.74.0", image, fixed)


def grype(digest: str = DIGEST) -> dict[str, Any]:
    """Return what Grype writes, which has neither fixes nor days."""
    rating = {"severity": "critical", "score": 9.8, "method": "CVSSv31", "vector": "CVSS:3.1/AV:N"}
    critical = {"ratings": [rating], "affects": [{"ref": "1"}]}
    return _document("grype", "0.121.2", {"name": "h.example/a", "version": digest}, critical)


def _document(tool: str, version: str, image: dict[str, Any], critical: dict[str, Any]) -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {
            "timestamp": TIME,
            "tools": {"components": [{"type": "application", "name": tool, "version": version}]},
            "component": {"bom-ref": "image", "type": "container", **image},
        },
        "components": [DEBIAN, WHEEL],
        "vulnerabilities": [
            {"id": "CVE-2026-1001", **critical},
            {"id": "CVE-2026-1002", "ratings": [{"severity": "medium"}], "affects": [{"ref": "2"}]},
        ],
    }


def write_report(folder: Path, document: Mapping[str, Any], name: str = "report.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
