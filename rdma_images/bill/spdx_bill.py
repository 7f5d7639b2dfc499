"""The bill of materials as SPDX 2.3: spdx.github.io/spdx-spec/v2.3, sections 6 to 11."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rdma_images.bill.parts import BillPart
from rdma_images.core import spdx
from rdma_images.inspection.report import Report
from rdma_images.registry.client import canonical

SPDX = "application/spdx+json"
PREDICATE = "https://spdx.dev/Document"  # the predicate type under which cosign signs it
ROOT = "SPDXRef-image"
NO_ASSERTION = "NOASSERTION"
PACKAGE_URL = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl"}
_UNUSUAL = re.compile(r"[^A-Za-z0-9.-]")


def spdx_bill(name: str, report: Report, parts: Sequence[BillPart]) -> bytes:
    """Return SPDX 2.3 JSON of an image's parts; the same facts give the same bytes."""
    all_parts = [*parts, *(bundled for part in parts for bundled in part.bundled)]
    ids = {part.ref: f"SPDXRef-{number}-{_UNUSUAL.sub('-', part.name)}" for number, part in enumerate(all_parts)}
    symbols = frozenset(symbol for part in all_parts for symbol in spdx.symbols(part.license))
    references = sorted(symbol for symbol in symbols if symbol.startswith("LicenseRef-"))
    image = {
        "SPDXID": ROOT,
        "name": name,
        "versionInfo": report.digest,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [{"algorithm": "SHA256", "checksumValue": report.digest.removeprefix("sha256:")}],
    }
    created = datetime.fromisoformat(report.started).astimezone(UTC)
    body = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"urn:rdma-images:spdx:{report.digest}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: rdma-images"]},
        "documentDescribes": [ROOT],
        "packages": [image, *(_package(part, ids) for part in all_parts)],
        "relationships": list(_relationships(parts, ids)),
        "hasExtractedLicensingInfos": [
            {"licenseId": reference, "extractedText": "The text is in the image, in the files that `licenses` names."}
            for reference in references
        ],
    }
    return canonical(body)


def _package(part: BillPart, ids: dict[str, str]) -> dict[str, Any]:
    """Return a part of the bill as an SPDX package; `ids` has the SPDX ids by the part's reference."""
    body: dict[str, Any] = {
        "SPDXID": ids[part.ref],
        "name": part.name,
        "downloadLocation": part.address or NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": part.license or NO_ASSERTION,
        "copyrightText": NO_ASSERTION,
    }
    optional = {
        "versionInfo": part.version,
        "supplier": f"Organization: {part.supplier}" if part.supplier else "",
        "checksums": [{"algorithm": "SHA256", "checksumValue": part.sha256}] if part.sha256 else [],
        "externalRefs": [{**PACKAGE_URL, "referenceLocator": part.purl.to_string()}] if part.purl else [],
        "comment": "; ".join(f"{key}={value}" for key, value in sorted(part.properties.items())),
    }
    return body | {key: value for key, value in optional.items() if value}


def _relationships(parts: Sequence[BillPart], ids: dict[str, str]) -> Iterator[dict[str, str]]:
    yield _relationship("SPDXRef-DOCUMENT", "DESCRIBES", ROOT)
    for part in parts:
        yield _relationship(ROOT, "CONTAINS", ids[part.ref])
        yield from (_relationship(ids[part.ref], "CONTAINS", ids[bundled.ref]) for bundled in part.bundled)
        dependencies = (ref for ref in part.depends if ref in ids and ref != part.ref)
        yield from (_relationship(ids[part.ref], "DEPENDS_ON", ids[ref]) for ref in dependencies)


def _relationship(element: str, kind: str, related: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}
