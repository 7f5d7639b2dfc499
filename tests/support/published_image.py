"""An image as it would be published, and the same in a test's registry."""

from collections.abc import Sequence

from rdma_images.core.check import Check
from rdma_images.core.image import BuildRecord, Image
from rdma_images.inspection.measurements import MeasuredPackages
from rdma_images.inspection.report import Report
from rdma_images.publish import publication
from rdma_images.publish.approved_image import ApprovedImage, artifacts
from rdma_images.publish.attach import Artifact
from rdma_images.publish.publication import Publication, PublishedCopy
from rdma_images.publish.push import LayerTraffic
from rdma_images.publish.tags import Tags
from rdma_images.registry.client import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, Repository, canonical
from tests.support.case_parts import case_like, report_on

RED = Check("plugin.found", "the plugin is found", "static", "error", "failed")
PACKAGES = MeasuredPackages(
    wheels={"/opt/venv": {"torch": "2.15.0"}, "/usr/lib/python3/dist-packages": {"torch": "2.15.0", "pip": "26.0"}},
    dpkg={"libc6": "2.41-12+deb13u1"},
    rpm={},
)


def validated(image: Image, digest: str, *checks: Check) -> Report:
    return report_on(image, *checks, facts=case_like(image, PACKAGES), digest=digest)


def approve(image: Image, digest: str, *checks: Check, allowed: Sequence[str] = ()) -> ApprovedImage:
    by = {"buildx": "0.13", "docker": "26.1"}
    build = BuildRecord(image.id, "r", digest, "sha256:2", (), "2026-11-21T08:00:00+00:00", 1.0, builder=by)
    return ApprovedImage(image, build, validated(image, digest, *checks), Tags(image.tag), tuple(allowed), {})


def write_publication(image: Image, stand_ins: tuple[str, ...] = (), tags: tuple[str, ...] = (), **refs: str) -> None:
    """Write publication.json of an image; `refs` has "host/repository@sha256:…" by the registry's name."""
    copies = {name: PublishedCopy(name, ref, tags, "pushed", "", 1, 1, LayerTraffic()) for name, ref in refs.items()}
    digest, none = next(iter(refs.values())).rpartition("@")[2], dict[str, str]()
    fields = (image.id, image.target, image.fabric, digest, image.platform, none, none, none, "", (), stand_ins)
    publication.write(Publication(*fields, copies=copies))


def make_artifacts(item: ApprovedImage, revision: str = "a" * 40) -> tuple[Artifact, ...]:
    return artifacts(item, {"org.opencontainers.image.revision": revision})


def put_image(repository: Repository, image: Image, platform: str = "linux/amd64", **more: str) -> Manifest:
    """Put an image without layers into the registry, and return its manifest."""
    system, _, architecture = platform.partition("/")
    labels = {"org.opencontainers.image.version": image.tag}
    config = {"os": system, "architecture": architecture, "config": {"Labels": labels}, **more}
    digest = repository.put_blob(canonical(config))
    body = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": {"digest": digest}, "layers": []}
    manifest = Manifest(OCI_MANIFEST, canonical(body))
    repository.put_manifest(manifest.digest, manifest)
    return manifest


def make_index(*members: tuple[Manifest, str]) -> Manifest:
    """Return an index over manifests, each with the platform that it is said to be for."""
    entries = [
        Descriptor(
            OCI_MANIFEST, member.digest, len(member.raw), platform={"os": "linux", "architecture": name}
        ).as_json()
        for member, name in members
    ]
    return Manifest(OCI_INDEX, canonical({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}))
