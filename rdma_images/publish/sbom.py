"""The bill of materials: every Debian package, RPM and Python wheel that was measured inside the image."""

import json
import uuid
from collections.abc import Iterable, Mapping

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND
from rdma_images.core.pipeline import LABEL_PREFIX, PACKAGE_ORIGIN
from rdma_images.inspection.measurements import Packages
from rdma_images.inspection.report import Report
from rdma_images.registry.client import canonical

CYCLONEDX = "application/vnd.cyclonedx+json"
PREDICATE = "https://cyclonedx.org/bom"  # the predicate type under which cosign signs it
_SPACE = uuid.UUID("6f0a1d7e-7b0f-5c0c-9a53-0d9f4e1f5d10")  # ours, so that one image always gets one serial number


def sbom(name: str, report: Report, labels: Mapping[str, str]) -> bytes:
    """CycloneDX 1.6 JSON of the packages that `report` has measured; the same facts give the same bytes.

    The image's `labels` say which Python packages are not the public index's: their addresses do not name it.
    Raises RdmaImagesError where the report has measured no packages: an empty list would be a false one.
    """
    packages = report.facts.measured.packages if report.facts else None
    components = (
        [*_wheels(packages.wheels, _origins(labels)), *_system(packages, _distribution(report))] if packages else []
    )
    if not components:
        raise RdmaImagesError(
            f"the report of {report.ref} has measured no packages\nrun `{COMMAND} validate` for the image again"
        )
    bom = Bom(serial_number=uuid.uuid5(_SPACE, report.digest))
    bom.metadata.component = Component(
        name=name, version=report.digest, type=ComponentType.CONTAINER, bom_ref=report.digest
    )
    bom.components.update(components)
    bom.register_dependency(bom.metadata.component, components)
    body = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library writes the moment and itself; the moment of the measuring is the truth, and it is the same every time.
    body["metadata"]["timestamp"] = report.started
    return canonical(body)


def _origins(labels: Mapping[str, str]) -> dict[str, str]:
    """Return where the packages of no public index are from, by name."""
    prefix = f"{LABEL_PREFIX}.{PACKAGE_ORIGIN}."
    return {key.removeprefix(prefix): origin for key, origin in labels.items() if key.startswith(prefix)}


def _wheels(folders: Mapping[str, Mapping[str, str]], origins: Mapping[str, str]) -> Iterable[Component]:
    """Return one component for a wheel, however many folders it is in."""
    releases = {(name, version) for wheels in folders.values() for name, version in wheels.items()}
    for name, version in sorted(releases):
        origin = origins.get(canonicalize_name(name))
        vcs = {"vcs_url": origin} if origin and origin.startswith("git+") else None
        yield _component(PackageURL("generic" if origin else "pypi", None, name, version, vcs))


def _system(packages: Packages, distribution: str) -> Iterable[Component]:
    """Return the packages of the distribution's own managers."""
    vendor = distribution.partition("-")[0] or None
    qualifiers = {"distro": distribution} if distribution else None
    for kind, installed in (("deb", packages.dpkg), ("rpm", packages.rpm)):
        for name, version in sorted(installed.items()):
            yield _component(PackageURL(kind, vendor, name, version, qualifiers))


def _component(purl: PackageURL) -> Component:
    text = purl.to_string()
    return Component(name=purl.name, version=purl.version, type=ComponentType.LIBRARY, purl=purl, bom_ref=text)


def _distribution(report: Report) -> str:
    """Return the distribution and its release as package URLs write them (debian-13).

    Empty where they are not known.
    """
    system = report.facts.measured.system if report.facts else None
    release = system.os if system else {}
    return "-".join(release[key] for key in ("ID", "VERSION_ID") if release.get(key))
