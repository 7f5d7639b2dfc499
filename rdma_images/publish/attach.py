"""Attaching to an image without touching it: artifacts that name it as their subject, found by referrers or by tag."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from rdma_images.engine import turn
from rdma_images.publish import faults
from rdma_images.publish.client import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, Repository, canonical

EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
CREATED = "org.opencontainers.image.created"
TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True)
class Artifact:
    """Something to attach. The same content gives the same digest, so it is attached once however often that is tried.

    `created` is ISO 8601, UTC: of what is attached, not of the attaching.
    """

    type: str
    title: str
    content: bytes
    created: str
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Attached:
    """An artifact in a registry."""

    type: str
    title: str
    digest: str
    new: bool  # False: it was there


def manifest_of(artifact: Artifact, subject: Descriptor) -> Manifest:
    """The manifest that ties `artifact` to `subject` (image specification 1.1, "guidelines for artifact usage")."""
    empty = Manifest(EMPTY_TYPE, EMPTY)
    content = Manifest(artifact.type, artifact.content)
    layer = Descriptor(artifact.type, content.digest, len(artifact.content), {TITLE: artifact.title})
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": artifact.type,
        "config": Descriptor(EMPTY_TYPE, empty.digest, len(EMPTY)).as_json(),
        "layers": [layer.as_json()],
        "subject": subject.as_json(),
        "annotations": {CREATED: artifact.created, **artifact.annotations},
    }
    return Manifest(OCI_MANIFEST, canonical(body))


def attach(artifacts: Sequence[Artifact], subject: Descriptor, repository: Repository) -> tuple[Attached, ...]:
    """Attach every one of `artifacts` to `subject`; nothing is sent of those that are there."""
    known = {entry.digest for entry in attachments(repository, subject.digest)}
    return tuple(_attach(artifact, subject, repository, known) for artifact in artifacts)


def _attach(artifact: Artifact, subject: Descriptor, repository: Repository, known: Collection[str]) -> Attached:
    manifest = manifest_of(artifact, subject)
    if manifest.digest in known:
        return Attached(artifact.type, artifact.title, manifest.digest, new=False)
    repository.put_blob(EMPTY)
    repository.put_blob(artifact.content)
    answer = repository.put_manifest(manifest.digest, manifest)
    if "OCI-Subject" not in answer.headers:
        _note_in_tag(repository, subject.digest, manifest, artifact)
    return Attached(artifact.type, artifact.title, manifest.digest, new=True)


def attachments(repository: Repository, digest: str) -> tuple[Descriptor, ...]:
    """What is attached to the image `digest`, by the referrers API or, where there is none, by the tag scheme."""
    found = repository.referrers(digest)
    if found is not None:
        return found
    try:
        index = repository.manifest(fallback_tag(digest))
    except faults.MissingError:
        return ()
    return tuple(Descriptor.from_json(entry) for entry in index.body.get("manifests", ()))


def content_of(repository: Repository, attached: Descriptor) -> bytes:
    """The bytes of an attachment."""
    manifest = repository.manifest(attached.digest)
    return repository.blob(manifest.layers()[0].digest)


def fallback_tag(digest: str) -> str:
    """The tag under which registries without referrers list them (distribution specification 1.1)."""
    return digest.replace(":", "-")


def _note_in_tag(repository: Repository, digest: str, manifest: Manifest, artifact: Artifact) -> None:
    """Add the manifest to the index under the fallback tag.

    The index is read, changed and written, which two writers may do at once: those of this machine take turns, and one
    elsewhere is noticed by reading again.
    """
    annotations = {CREATED: artifact.created, **artifact.annotations}
    entry = Descriptor(
        manifest.media_type, manifest.digest, len(manifest.raw), annotations, artifact_type=artifact.type
    )
    with turn.take("attach", f"attaching to {repository.ref}@{digest}"):
        for _ in range(5):
            known = attachments(repository, digest)
            if entry.digest in {one.digest for one in known}:
                return
            body = {
                "schemaVersion": 2,
                "mediaType": OCI_INDEX,
                "manifests": [one.as_json() for one in (*known, entry)],
            }
            repository.put_manifest(fallback_tag(digest), Manifest(OCI_INDEX, canonical(body)))
            if entry.digest in {one.digest for one in attachments(repository, digest)}:
                return
    raise faults.BusyError(f"{repository.ref}: others keep rewriting the attachments of {digest}")
