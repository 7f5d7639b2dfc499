"""What a published image carries, read back by anybody: whose signature, whose report, of which digest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rdma_images.engine import Progress, silent
from rdma_images.errors import RefusedError
from rdma_images.publish import cosign, faults, statement, tags
from rdma_images.publish.attach import CREATED, FORM, attachments, content_of, fallback_tag
from rdma_images.publish.client import DOCKER_INDEX, OCI_INDEX, Manifest, Repository, labels_of
from rdma_images.publish.cosign import Cosign
from rdma_images.publish.http import Connection
from rdma_images.publish.judges import NAMES, Finding, allowed_red, judged
from rdma_images.publish.keys import Trust
from rdma_images.publish.kinds import open_kind
from rdma_images.publish.registries import HOST, Registry


@dataclass(frozen=True)
class Verification:
    """All that was found on one image, or on an index over several."""

    ref: str  # by digest
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Nothing that was looked at is wrong."""
        return not any(finding.holds is False for finding in self.findings)


@dataclass(frozen=True)
class Witness:
    """cosign, and whom it is to believe."""

    cosign: Cosign
    trust: Trust

    def signed(self, ref: str) -> bool:
        """Whether `ref` carries their signature."""
        return self.cosign.verified(ref, self.trust)

    def attested(self, ref: str, form: str, content: bytes) -> bool:
        """Whether they signed just this content on `ref`."""
        return self.cosign.attested(ref, self.trust, form, content)


def witness(repository: Repository, trust: Trust | None, progress: Progress = silent) -> Witness | None:
    """Who is asked of the signatures in `repository`; None where nobody is trusted."""
    if trust is None:
        return None
    connection = repository.connection
    return Witness(Cosign(cosign.program(progress), connection.host, connection.login()), trust)


def split(ref: str) -> tuple[str, str, str]:
    """Host, repository, and tag or digest of "host/repository:tag" or "host/repository@sha256:…"."""
    host, slash, rest = ref.partition("/")
    if not slash or not HOST.fullmatch(host) or not ("." in host or ":" in host or host == "localhost"):
        raise RefusedError(f"{ref!r} names no registry: write host/repository:tag or host/repository@sha256:…")
    if "@" in rest:
        name, _, reference = rest.partition("@")
        return host, name.partition(":")[0], reference
    name, _, tag = rest.partition(":")
    return host, name, tag or "latest"


def verify(ref: str, registry: Registry, trust: Trust | None, progress: Progress = silent) -> tuple[Verification, ...]:
    """Look at an image in a registry; of an index first at itself, then at the image of each platform.

    With `trust`, the index, each image and every statement on it have to be signed by it. Raises a PublishError where
    the registry does not answer, MissingError where it has no such image.
    """
    host, name, reference = split(ref)
    kind = open_kind(registry)
    repository = Repository(Connection(host, kind.login, kind.tls), name)
    found = repository.manifest(reference)
    asked = witness(repository, trust, progress)
    if found.media_type not in (OCI_INDEX, DOCKER_INDEX):
        return (image(repository, found, reference, asked),)
    images = {one.digest: repository.manifest(one.digest) for one in found.members()}
    return (
        _index(repository, found, images, asked),
        *(image(repository, one, reference, asked) for one in images.values()),
    )


def _index(
    repository: Repository, index: Manifest, images: Mapping[str, Manifest], asked: Witness | None
) -> Verification:
    """Whether the list itself is signed, lists anything, and calls each image by the platform that it is of."""
    listed = [(one.digest, _platform(one.platform)) for one in index.members()]
    real = {digest: _platform(repository.config(manifest)) for digest, manifest in images.items()}
    wrong = [f"{digest} as {said}, but it is {real[digest]}" for digest, said in listed if said != real[digest]]
    detail = "; ".join(wrong) or ", ".join(said for _, said in listed) or "there is none: the index lists no image"
    platforms = Finding("platforms", bool(listed) and not wrong, detail)
    return Verification(f"{repository.ref}@{index.digest}", (_signature(repository, index.digest, asked), platforms))


def _platform(body: Mapping[str, Any]) -> str:
    """The platform in an index's entry, or in an image's config: they call it alike."""
    return f"{body.get('os')}/{body.get('architecture')}"


def image(repository: Repository, manifest: Manifest, reference: str, asked: Witness | None) -> Verification:
    """All there is to find on one image, which `reference`, a tag or digest, led to."""
    digest = manifest.digest
    ref = f"{repository.ref}@{digest}"
    files, unreadable = _chosen(repository, digest, asked)
    findings = [_signature(repository, digest, asked), *_tag(reference, repository.config(manifest)), *unreadable]
    allowed = allowed_red(files.get(statement.REPORT))
    for form in NAMES:
        content = files.get(form)
        if form == statement.BUILDKIT and content is None:
            continue  # of a builder that keeps no history, or that could not be asked
        findings += judged(form, content, digest, allowed)
        if asked is not None and content is not None:
            findings.append(_signed(form, content, ref, asked))
    return Verification(ref, tuple(findings))


def _chosen(repository: Repository, digest: str, asked: Witness | None) -> tuple[dict[str, bytes], tuple[Finding, ...]]:
    """An attachment of each form, by predicate type: the newest that is signed by whom we trust, or the newest.

    What other tools attached is theirs and is left out; what claims to be ours and cannot be read is told.
    """
    found: dict[str, list[bytes]] = {}
    unreadable = []
    oldest_first = sorted(attachments(repository, digest), key=lambda one: one.annotations.get(CREATED, ""))
    for entry in reversed(oldest_first):
        form = entry.annotations.get(FORM, "")
        if form not in NAMES:
            continue
        try:
            found.setdefault(form, []).append(content_of(repository, entry.digest))
        except faults.MalformedError as error:
            unreadable.append(Finding(NAMES[form], None, f"passed over: {error}"))
    ref = f"{repository.ref}@{digest}"
    chosen = {form: _signed_first(form, contents, ref, asked) for form, contents in found.items() if contents}
    return chosen, tuple(unreadable)


def _signed_first(form: str, contents: list[bytes], ref: str, asked: Witness | None) -> bytes:
    if asked is None or len(contents) == 1:
        return contents[0]
    return next((one for one in contents if asked.attested(ref, form, one)), contents[0])


def _tag(reference: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the tag says what the image is; nothing of a digest, and of a tag that is not of the grammar."""
    version = labels_of(config).get(tags.VERSION, "")
    holds = tags.fits(reference, version, _platform(config))
    if holds is not None:
        relation = "leads to" if holds else "is not true of"
        yield Finding("tag", holds, f"{reference} {relation} {version or 'an image that names no version'}")


def _signature(repository: Repository, digest: str, asked: Witness | None) -> Finding:
    if asked is not None:
        good = asked.signed(f"{repository.ref}@{digest}")
        return Finding("signature", good, f"by {asked.trust}" if good else f"no signature by {asked.trust}")
    if repository.head(f"{fallback_tag(digest)}.sig"):
        return Finding("signature", None, "there is one, which was not checked: give --key, or --identity and --issuer")
    return Finding("signature", None, "there is none: this is the word of whoever may push here")


def _signed(form: str, content: bytes, ref: str, asked: Witness) -> Finding:
    """Whether whom we trust signed just what is attached."""
    what = f"signed {NAMES[form]}"
    if asked.attested(ref, form, content):
        return Finding(what, True, f"by {asked.trust}, word for word what is attached")
    return Finding(what, False, f"{asked.trust} signed no such {NAMES[form]}")
