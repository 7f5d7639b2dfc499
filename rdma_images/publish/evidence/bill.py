"""The bill of materials as CycloneDX 1.6."""

import json
import uuid
from collections.abc import Sequence

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6

from rdma_images.inspection.report import Report
from rdma_images.publish.evidence.bill_parts import BillPart
from rdma_images.registry.client import canonical

CYCLONEDX = "application/vnd.cyclonedx+json"
PREDICATE = "https://cyclonedx.org/bom"  # the predicate type under which cosign signs it
_SPACE = uuid.UUID("6f0a1d7e-7b0f-5c0c-9a53-0d9f4e1f5d10")  # ours, so that one image always gets one serial number


def cyclonedx_bill(name: str, report: Report, parts: Sequence[BillPart]) -> bytes:
    """Return CycloneDX 1.6 JSON of an image's parts; the same facts give the same bytes."""
    bom = Bom(serial_number=uuid.uuid5(_SPACE, report.digest))
    bom.metadata.component = Component(
        name=name, version=report.digest, type=ComponentType.CONTAINER, bom_ref=report.digest
    )
    components = {part.ref: _component(part) for part in parts}
    bom.components.update(components.values())
    bom.register_dependency(bom.metadata.component, components.values())
    for part in parts:
        depends = [components[ref] for ref in part.depends if ref in components and ref != part.ref]
        bom.register_dependency(components[part.ref], depends)
    body = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library writes the moment and itself; the moment of the measuring is the truth, and it is the same every time.
    body["metadata"]["timestamp"] = report.started
    return canonical(body)


def _component(part: BillPart) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else []
    is_download = bool(part.address)
    reference = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(part.address), hashes=hashes)
    return Component(
        name=part.name,
        version=part.version or None,
        type=ComponentType.LIBRARY,
        purl=part.purl,
        bom_ref=part.ref,
        licenses=[LicenseExpression(part.license)] if part.license else [],
        supplier=OrganizationalEntity(name=part.supplier) if part.supplier else None,
        hashes=[] if is_download else hashes,
        external_references=[reference] if is_download else [],
        properties=[Property(name=key, value=value) for key, value in sorted(part.properties.items())],
        components=[_component(bundled) for bundled in part.bundled],
    )
