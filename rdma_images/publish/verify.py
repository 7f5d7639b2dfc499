"""Check the signature, tag and attachments of a published image."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rdma_images.core.errors import first_line
from rdma_images.core.progress import Progress, silent
from rdma_images.publish import statement
from rdma_images.publish.attach import PREDICATE_TYPE, fallback_tag, read_content, sorted_attachments
from rdma_images.publish.attachment_checks import OPTIONAL, TITLES, VerifyFinding, allowed_failures, check_attachment
from rdma_images.publish.cosign import Cosign
from rdma_images.publish.destination import open_repository
from rdma_images.publish.keys import Trust
from rdma_images.publish.stargz import originals
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Manifest, Repository
from rdma_images.registry.reference import parse_reference
from rdma_images.registry.registries import Registry


@dataclass(frozen=True)
class Verification:
    """The findings on one image, or on an index over several."""

    ref: str  # by digest
    findings: tuple[VerifyFinding, ...]

    @property
    def holds(self) -> bool:
        """Return whether no check failed."""
        return not any(finding.holds is False for finding in self.findings)


@dataclass(frozen=True)
class Verifier:
    """cosign for the registry of an image, and the signer that is trusted."""

    cosign: Cosign
    trust: Trust


def verify(ref: str, registry: Registry, trust: Trust | None, progress: Progress = silent) -> tuple[Verification, ...]:
    """Return the checks of an image, or of an index and each of its images.

    Args:
        trust: Where given, the index, each image and every statement on it have to be signed by it.

    Raises:
        RegistryError: The registry does not answer.
        MissingError: The registry has no such image.
    """
    reference = parse_reference(ref)
    repository = open_repository(reference, registry)
    manifest = repository.manifest(reference.selector)
    verifier = Verifier(Cosign(repository.connection, progress), trust) if trust else None
    if not manifest.is_index:
        return (_verify_image(repository, manifest, verifier),)
    images = {member.digest: repository.manifest(member.digest) for member in manifest.members()}
    converted = originals(manifest)
    return (
        _verify_index(repository, manifest, images, verifier),
        *(
            _verify_original(repository, member, converted[digest], verifier)
            if digest in converted
            else _verify_image(repository, member, verifier)
            for digest, member in images.items()
        ),
    )


def _verify_original(
    repository: Repository, converted: Manifest, digest: str, verifier: Verifier | None
) -> Verification:
    """Check the original `digest` of `converted`: it carries the evidence of both.

    Only the signature of the index over `converted` vouches that the layers of both have the same files.
    """
    try:
        original = repository.manifest(digest)
    except registry_errors.MissingError:
        missing = f"{converted.digest} was converted from it, and it is not there: publish it again"
        return Verification(f"{repository.ref}@{digest}", (VerifyFinding("original", False, missing),))
    is_same = converted.body.get("config") == original.body.get("config")
    detail = f"{converted.digest}, converted from it, has {'the same' if is_same else 'another'} config"
    verification = _verify_image(repository, original, verifier)
    return replace(verification, findings=(VerifyFinding("original", is_same, detail), *verification.findings))


def _verify_index(
    repository: Repository, index: Manifest, images: Mapping[str, Manifest], verifier: Verifier | None
) -> Verification:
    """Check an index: its signature, its platforms, and the results of jobs."""
    listed = [(entry.digest, _platform(entry.platform)) for entry in index.members() if entry.digest in images]
    actual_platforms = {digest: _platform(repository.config(manifest)) for digest, manifest in images.items()}
    mismatches = [
        f"{digest} as {platform}, but it is {actual_platforms[digest]}"
        for digest, platform in listed
        if platform != actual_platforms[digest]
    ]
    detail = "; ".join(mismatches) or ", ".join(platform for _, platform in listed) or "none: the index lists no image"
    platforms = VerifyFinding("platforms", bool(listed) and not mismatches, detail)
    ref = f"{repository.ref}@{index.digest}"
    files, unreadable = _newest_by_type(repository, index.digest, verifier)
    results = _attachment_findings(statement.RESULTS, files.get(statement.RESULTS), index.digest, verifier, ref)
    signature = _check_signature(repository, index.digest, verifier)
    return Verification(ref, (signature, platforms, *unreadable, *results))


def _platform(body: Mapping[str, Any]) -> str:
    """Return the platform in an index's entry, or in an image's config: they call it alike."""
    return f"{body.get('os')}/{body.get('architecture')}"


def _verify_image(repository: Repository, manifest: Manifest, verifier: Verifier | None) -> Verification:
    """Return the checks of one image."""
    digest = manifest.digest
    ref = f"{repository.ref}@{digest}"
    files, unreadable = _newest_by_type(repository, digest, verifier)
    built_elsewhere = statement.TEST_RESULT in files and statement.PROVENANCE not in files
    findings = [_check_signature(repository, digest, verifier), *unreadable]
    allowed_ids = allowed_failures(files.get(statement.REPORT))
    for predicate_type in TITLES:
        if predicate_type == statement.PROVENANCE and built_elsewhere:
            continue
        findings += _attachment_findings(predicate_type, files.get(predicate_type), digest, verifier, ref, allowed_ids)
    return Verification(ref, tuple(findings))


def _attachment_findings(
    predicate_type: str,
    content: bytes | None,
    digest: str,
    verifier: Verifier | None,
    ref: str,
    allowed: frozenset[str] = frozenset(),
) -> Iterator[VerifyFinding]:
    """Check the attachment of one predicate type; an optional one that is not there gives no finding."""
    if predicate_type in OPTIONAL and content is None:
        return
    yield from check_attachment(predicate_type, content, digest, allowed)
    if verifier is not None and content is not None:
        yield _check_statement(predicate_type, content, ref, verifier)


def _newest_by_type(
    repository: Repository, digest: str, verifier: Verifier | None
) -> tuple[dict[str, bytes], tuple[VerifyFinding, ...]]:
    """Return the newest attachment of each predicate type, a signed one where there is one.

    Attachments of other tools are left out. An unreadable attachment with a predicate type of ours is a finding.
    """
    contents_by_type: dict[str, list[bytes]] = {}
    unreadable = []
    for entry in sorted_attachments(repository, digest):
        predicate_type = entry.annotations.get(PREDICATE_TYPE, "")
        if predicate_type not in TITLES:
            continue
        try:
            contents_by_type.setdefault(predicate_type, []).append(read_content(repository, entry.digest))
        except registry_errors.MalformedError as error:
            unreadable.append(VerifyFinding(TITLES[predicate_type], None, f"ignored: {first_line(error)}"))
    ref = f"{repository.ref}@{digest}"
    content_by_type = {
        name: _prefer_signed(name, contents, ref, verifier) for name, contents in contents_by_type.items() if contents
    }
    return content_by_type, tuple(unreadable)


def _prefer_signed(predicate_type: str, contents: list[bytes], ref: str, verifier: Verifier | None) -> bytes:
    if verifier is None or len(contents) == 1:
        return contents[0]
    cosign, trust = verifier.cosign, verifier.trust
    signed = (content for content in contents if cosign.has_attested(ref, trust, predicate_type, content))
    return next(signed, contents[0])


def _check_signature(repository: Repository, digest: str, verifier: Verifier | None) -> VerifyFinding:
    if verifier is not None:
        ref = f"{repository.ref}@{digest}"
        if verifier.cosign.has_signed(ref, verifier.trust):
            return VerifyFinding("signature", True, f"by {verifier.trust}")
        return VerifyFinding("signature", False, f"no signature by {verifier.trust}")
    if repository.find_digest(f"{fallback_tag(digest)}.sig"):
        return VerifyFinding("signature", None, "present and not checked: give --key, or --identity and --issuer")
    return VerifyFinding("signature", None, "none: anybody with push access can have written this")


def _check_statement(predicate_type: str, content: bytes, ref: str, verifier: Verifier) -> VerifyFinding:
    """Check whether the trusted signer signed exactly this attachment."""
    title = f"signed {TITLES[predicate_type]}"
    if verifier.cosign.has_attested(ref, verifier.trust, predicate_type, content):
        return VerifyFinding(title, True, f"by {verifier.trust}, word for word what is attached")
    return VerifyFinding(title, False, f"{verifier.trust} signed no such {TITLES[predicate_type]}")
