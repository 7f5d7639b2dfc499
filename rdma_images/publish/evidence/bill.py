"""The bill of materials: an image's parts with origin, licence and dependencies, as CycloneDX 1.6."""

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from rdma_images import facts
from rdma_images.components.efa_installer import EFA_INSTALLER
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import LABEL_PREFIX, PACKAGE_ORIGIN, TOOL, Image
from rdma_images.core.paths import COMMAND
from rdma_images.inputs import lock, sources
from rdma_images.inputs.wheels import Wheel
from rdma_images.inspection.measurements import DebianContents, MeasuredPackages, PackageContents, WheelContents
from rdma_images.inspection.report import Report
from rdma_images.publish.evidence import licenses
from rdma_images.registry.client import canonical

CYCLONEDX = "application/vnd.cyclonedx+json"
PREDICATE = "https://cyclonedx.org/bom"  # the predicate type under which cosign signs it
_SPACE = uuid.UUID("6f0a1d7e-7b0f-5c0c-9a53-0d9f4e1f5d10")  # ours, so that one image always gets one serial number
REQUIRED_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")  # at the beginning of a requirement
NO_LABELS: Mapping[str, str] = {}


class BillEntry(NamedTuple):
    """A package or the download of something installed, and the references of what it depends on."""

    component: Component
    depends: Sequence[str] = ()

    @property
    def ref(self) -> str:
        """Return its package URL."""
        return str(self.component.bom_ref.value)


def list_entries(report: Report, image: Image | None = None, labels: Mapping[str, str] = NO_LABELS) -> list[BillEntry]:
    """Return the parts measured by `report`, with `image` also hashes and downloads.

    The image's `labels` say which Python packages are not the public index's: their addresses do not name it.
    Raises RdmaImagesError where the report has measured no packages: an empty list would be a false one.
    """
    measured = report.inspection.measured if report.inspection else None
    packages = measured.packages if measured else None
    if measured is None or packages is None or not (packages.dpkg or packages.rpm or packages.installed):
        raise RdmaImagesError(
            f"the report of {report.ref} has measured no packages\nrun `{COMMAND} validate` for the image again"
        )
    contents = measured.contents or PackageContents()
    release = measured.system.os if measured.system else {}
    distribution = "-".join(release[key] for key in ("ID", "VERSION_ID") if release.get(key))  # "debian-13"
    locked_wheels = lock.read_image_lock(image).wheels if image and lock.exists(lock.lock_request(image)) else ()
    locked = {(wheel.name, wheel.version): wheel for wheel in locked_wheels}
    wheels = list(_wheels(packages, contents, locked, _origins(labels)))
    debian = list(_debian(packages, contents, distribution))
    return [*wheels, *debian, *_rpm(packages, distribution), *_downloads(image, report.stand_ins, contents, debian)]


def _origins(labels: Mapping[str, str]) -> dict[str, str]:
    """Return where the packages of no public index are from, by name."""
    prefix = f"{LABEL_PREFIX}.{PACKAGE_ORIGIN}."
    return {key.removeprefix(prefix): origin for key, origin in labels.items() if key.startswith(prefix)}


def _python_purl(name: str, version: str, origins: Mapping[str, str]) -> PackageURL:
    origin = origins.get(canonicalize_name(name))
    vcs = {"vcs_url": origin} if origin and origin.startswith("git+") else None
    return PackageURL("generic" if origin else "pypi", None, name, version, vcs)


def _wheels(
    packages: MeasuredPackages,
    contents: PackageContents,
    locked: Mapping[tuple[str, str], Wheel],
    origins: Mapping[str, str],
) -> Iterator[BillEntry]:
    """Yield each wheel once, however many folders it is in."""
    releases: dict[tuple[str, str], tuple[str, WheelContents]] = {}
    for folder, wheels in packages.wheels.items():
        for name, version in wheels.items():
            details = contents.wheels.get(folder, {}).get(name, WheelContents())
            releases.setdefault((name, version), (folder, details))
    purls = {release: _python_purl(*release, origins) for release in releases}
    refs = {name: purl.to_string() for (name, _), purl in purls.items()}
    for (name, version), (folder, details) in sorted(releases.items()):
        purl = purls[name, version]
        wheel = locked.get((str(canonicalize_name(name)), version.partition("+")[0]))
        wheel = wheel or locked.get((str(canonicalize_name(name)), version))
        is_compiled = wheel is not None and wheel.is_source
        component = Component(
            name=name,
            version=version,
            purl=purl,
            bom_ref=str(purl),
            hashes=_hashes(wheel.sha256) if wheel and not is_compiled else [],
            properties=_properties({"compiled-from": f"sha256:{wheel.sha256}"} if wheel and is_compiled else {}),
            licenses=licenses.wheel_licenses(details),
            supplier=_supplier(details.supplier),
            components=_bundled(purl, folder, details),
        )
        matches = filter(None, map(REQUIRED_NAME.match, details.requires))
        required = sorted({canonicalize_name(match.group()) for match in matches})
        yield BillEntry(component, [refs[other] for other in required if other in refs])


def _bundled(wheel: PackageURL, folder: str, details: WheelContents) -> Iterator[Component]:
    """Yield the libraries and the Python packages inside a wheel."""
    for path, digest in details.bundled.items():
        yield Component(
            name=path.rpartition("/")[2],
            bom_ref=f"{wheel}#{path}",
            hashes=_hashes(digest),
            properties=_properties({"path": f"{folder}/{path}"}),
        )
    for name, version in details.vendored.items():
        purl = PackageURL("pypi", None, name, version)
        yield Component(name=name, version=version or None, purl=purl, bom_ref=f"{wheel}#{purl}")


def _debian(packages: MeasuredPackages, contents: PackageContents, distribution: str) -> Iterator[BillEntry]:
    vendor = distribution.partition("-")[0] or None

    def purl(name: str) -> PackageURL:
        details = contents.debian.get(name, DebianContents())
        qualifiers = {"arch": details.architecture, "distro": distribution}
        set_qualifiers = {key: value for key, value in qualifiers.items() if value} or None
        return PackageURL("deb", vendor, name, packages.dpkg[name], set_qualifiers)

    for name, version in sorted(packages.dpkg.items()):
        details = contents.debian.get(name, DebianContents())
        source = packages.dpkg_sources.get(name)
        component = Component(
            name=name,
            version=version,
            purl=purl(name),
            bom_ref=str(purl(name)),
            licenses=licenses.debian_licenses(details),
            supplier=_supplier(details.supplier),
            properties=_properties({"source": source} if source else {}),
        )
        yield BillEntry(component, [str(purl(other)) for other in details.depends if other in packages.dpkg])


def _rpm(packages: MeasuredPackages, distribution: str) -> Iterator[BillEntry]:
    vendor = distribution.partition("-")[0] or None
    qualifiers = {"distro": distribution} if distribution else None
    for name, version in sorted(packages.rpm.items()):
        purl = PackageURL("rpm", vendor, name, version, qualifiers)
        yield BillEntry(Component(name=name, version=version, purl=purl, bom_ref=str(purl)))


def _downloads(
    image: Image | None, rehearsal: Sequence[str], contents: PackageContents, debian: Sequence[BillEntry]
) -> Iterator[BillEntry]:
    """Yield what was compiled or installed from a download, with its digest.

    The EFA installer depends on the packages that it says it brought. A download replaced by a stand-in has no digest.
    """
    if image is None:
        return
    efa = [part.ref for part in debian if part.component.name in contents.efa]
    for source in sources.pinned(image, facts.load()):
        if source.kind != "download":
            continue
        version = image.components[source.component].version if source.component in image.components else None
        is_stand_in = source.id in rehearsal
        algorithm, _, digest = source.pin.partition(":")
        reference = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(source.upstream),
            hashes=_hashes(digest if algorithm == "sha256" and not is_stand_in else ""),
        )
        component = Component(
            name=source.component,
            version=version,
            purl=PackageURL("generic", None, source.component, version),
            bom_ref=f"pkg:generic/{source.id}",
            external_references=[reference],
            properties=_properties({"stand-in": "true"} if is_stand_in else {"pin": source.pin}),
        )
        yield BillEntry(component, efa if source.component == EFA_INSTALLER.name else ())


def cyclonedx_bill(name: str, report: Report, parts: Sequence[BillEntry]) -> bytes:
    """Return CycloneDX 1.6 JSON of an image's parts; the same facts give the same bytes."""
    bom = Bom(serial_number=uuid.uuid5(_SPACE, report.digest))
    bom.metadata.component = Component(
        name=name, version=report.digest, type=ComponentType.CONTAINER, bom_ref=report.digest
    )
    components = {part.ref: part.component for part in parts}
    bom.components.update(components.values())
    bom.register_dependency(bom.metadata.component, components.values())
    for part in parts:
        depends = [components[ref] for ref in part.depends if ref in components and ref != part.ref]
        bom.register_dependency(components[part.ref], depends)
    body = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library writes the moment and itself; the moment of the measuring is the truth, and it is the same every time.
    body["metadata"]["timestamp"] = report.started
    return canonical(body)


def _hashes(sha256: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []


def _properties(values: Mapping[str, str]) -> list[Property]:
    return [Property(name=f"{TOOL}:{name}", value=value) for name, value in values.items()]


def _supplier(name: str) -> OrganizationalEntity | None:
    return OrganizationalEntity(name=name) if name else None
