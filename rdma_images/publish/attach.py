"""Attach artifacts to an image, which stays as it is: they name it as their subject."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rdma_images.core import locking
from rdma_images.registry import client, registry_errors
from rdma_images.registry.client import EMPTY, TITLE, Descriptor, Manifest, Repository, sha256_digest

CREATED = "org.opencontainers.image.created"
PREDICATE_TYPE = "io.rdma-images.predicate"
CONTENT_DIGEST = "io.rdma-images.edition"


@dataclass(frozen=True)
class Artifact:
    """Something to attach; equal artifacts are attached only once.

    Two are equal if their bytes are, or their predicate type and content digest: the provenance of an image that was
    built twice differs in its times alone. `created` is ISO 8601, UTC: of the content, not of the attaching.
    """

    type: str
    title: str
    content: bytes
    created: str
    predicate_type: str = ""  # the predicate type, which says what it is; empty for files of other tools
    content_digest: str = ""

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations of its manifest."""
        predicate_annotations = {PREDICATE_TYPE: self.predicate_type, CONTENT_DIGEST: self.content_digest}
        return {CREATED: self.created, **{name: value for name, value in predicate_annotations.items() if value}}


@dataclass(frozen=True)
class Attachment:
    """An artifact in a registry."""

    type: str
    title: str
    digest: str
    new: bool  # False: it was there
    has_equal: bool = False  # the registry has an equal one in other bytes


IsTrusted = Callable[[Descriptor, Artifact], bool]


def trust_all(_entry: Descriptor, _artifact: Artifact) -> bool:
    """Return True, for publications without a signer to check attachments against."""
    return True


def attachment_manifest(artifact: Artifact, subject: Descriptor) -> Manifest:
    """Return the manifest of `artifact` with its `subject`."""
    file = Descriptor(artifact.type, sha256_digest(artifact.content), len(artifact.content), {TITLE: artifact.title})
    return client.artifact_manifest(file, subject=subject.as_json(), annotations=artifact.annotations)


def attach(
    artifacts: Sequence[Artifact], subject: Descriptor, repository: Repository, is_trusted: IsTrusted = trust_all
) -> tuple[Attachment, ...]:
    """Attach each of `artifacts` to `subject`; nothing is sent of those that the registry has.

    `is_trusted` decides whether an attachment that says the same in other bytes replaces ours.
    """
    listed = attachments(repository, subject.digest)
    return tuple(_attach(artifact, subject, repository, listed, is_trusted) for artifact in artifacts)


def _attach(
    artifact: Artifact, subject: Descriptor, repository: Repository, listed: Sequence[Descriptor], is_trusted: IsTrusted
) -> Attachment:
    manifest = attachment_manifest(artifact, subject)
    equivalent = (entry for entry in listed if _is_equivalent(entry, artifact) and is_trusted(entry, artifact))
    if manifest.digest in {entry.digest for entry in listed}:
        return Attachment(artifact.type, artifact.title, manifest.digest, new=False)
    if entry := next(equivalent, None):
        return Attachment(artifact.type, artifact.title, entry.digest, new=False, has_equal=True)
    repository.put_blob(EMPTY)
    repository.put_blob(artifact.content)
    response = repository.put_manifest(manifest.digest, manifest)
    if "OCI-Subject" not in response.headers:
        _list_under_tag(repository, subject.digest, manifest, artifact)
    return Attachment(artifact.type, artifact.title, manifest.digest, new=True)


def _is_equivalent(entry: Descriptor, artifact: Artifact) -> bool:
    marks = entry.annotations.get(PREDICATE_TYPE, ""), entry.annotations.get(CONTENT_DIGEST, "")
    return bool(artifact.predicate_type) and marks == (artifact.predicate_type, artifact.content_digest)


def attachments(repository: Repository, digest: str) -> tuple[Descriptor, ...]:
    """Return the attachments of the image `digest`, by the referrers API or the tag scheme."""
    referrers = repository.referrers(digest)
    return referrers if referrers is not None else _under_tag(repository, fallback_tag(digest))


def sorted_attachments(repository: Repository, digest: str) -> list[Descriptor]:
    """Return the attachments of the image `digest`, the newest first."""
    return sorted(attachments(repository, digest), key=lambda entry: entry.annotations.get(CREATED, ""))[::-1]


def _under_tag(repository: Repository, reference: str) -> tuple[Descriptor, ...]:
    try:
        return repository.manifest(reference).members()
    except registry_errors.MissingError:
        return ()


def read_content(repository: Repository, digest: str) -> bytes:
    """Return the bytes of an attachment. Raises MalformedError where they cannot be read."""
    try:
        layers = repository.manifest(digest).layers()
        if not layers:
            raise registry_errors.MalformedError(
                "it has no content\nhave it deleted in the registry, and publish again"
            )
        return repository.blob(layers[0].digest)
    except (registry_errors.MalformedError, registry_errors.MissingError, registry_errors.ConflictError) as error:
        raise registry_errors.MalformedError(
            f"{repository.ref}: the attachment {digest} cannot be read: {error}"
        ) from None


def fallback_tag(digest: str) -> str:
    """Return the tag for attachments in registries without referrers (specification 1.1)."""
    return digest.replace(":", "-")


def _list_under_tag(repository: Repository, digest: str, manifest: Manifest, artifact: Artifact) -> None:
    """Add the manifest to the index under the fallback tag.

    Two writers may read, change and write the index at once: a lock keeps those of this machine apart, and reading
    again shows one elsewhere.
    """
    entry = Descriptor(
        manifest.media_type, manifest.digest, len(manifest.raw), artifact.annotations, artifact_type=artifact.type
    )
    with locking.hold("attach", f"attaching to {repository.ref}@{digest}"):
        for _ in range(5):
            listed = attachments(repository, digest)
            if entry.digest in {descriptor.digest for descriptor in listed}:
                return
            repository.put_manifest(fallback_tag(digest), client.index_manifest((*listed, entry)))
            if entry.digest in {descriptor.digest for descriptor in attachments(repository, digest)}:
                return
    raise registry_errors.BusyError(
        f"{repository.ref}: others keep rewriting the attachments of {digest}\npublish again when they have ended"
    )
