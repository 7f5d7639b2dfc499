"""What a published image carries, read back by anybody: whose signature, whose report, of which digest."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from rdma_images.engine import Progress, silent
from rdma_images.errors import RefusedError
from rdma_images.model import Report
from rdma_images.publish import cosign, sbom, statement
from rdma_images.publish.attach import CREATED, FORM, attachments, content_of, fallback_tag
from rdma_images.publish.client import DOCKER_INDEX, OCI_INDEX, Repository
from rdma_images.publish.cosign import Cosign, Trust
from rdma_images.publish.http import Connection
from rdma_images.publish.kinds import open_kind
from rdma_images.publish.registries import Registry

# What is looked for: the predicate types of what is attached, and what each is called.
_NAMES = {
    statement.REPORT: "report",
    statement.PROVENANCE: "provenance",
    statement.BUILDKIT: "BuildKit's record",
    sbom.PREDICATE: "bill of materials",
}


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `holds` is None where there was nothing to hold it against."""

    what: str
    holds: bool | None
    detail: str


@dataclass(frozen=True)
class Verification:
    """All that was found on one image."""

    ref: str  # by digest
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Nothing that was looked at is wrong."""
        return not any(finding.holds is False for finding in self.findings)


def split(ref: str) -> tuple[str, str, str]:
    """Host, repository, and tag or digest of "host/repository:tag" or "host/repository@sha256:…"."""
    host, slash, rest = ref.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        raise RefusedError(f"{ref!r} names no registry: write host/repository:tag or host/repository@sha256:…")
    if "@" in rest:
        name, _, reference = rest.partition("@")
        return host, name.partition(":")[0], reference
    name, _, tag = rest.partition(":")
    return host, name, tag or "latest"


def verify(ref: str, registry: Registry, trust: Trust | None, progress: Progress = silent) -> tuple[Verification, ...]:
    """Look at an image in a registry; one answer for each platform of an index.

    With `trust`, the image and every statement on it have to be signed by it. Raises a PublishError where the registry
    does not answer, MissingError where it has no such image.
    """
    host, name, reference = split(ref)
    kind = open_kind(registry)
    repository = Repository(Connection(host, kind.login, kind.tls), name)
    found = repository.manifest(reference)
    digests = [found.digest]
    if found.media_type in (OCI_INDEX, DOCKER_INDEX):
        digests = [entry["digest"] for entry in found.body["manifests"]]
    return tuple(_one(repository, digest, trust, progress) for digest in digests)


def _one(repository: Repository, digest: str, trust: Trust | None, progress: Progress) -> Verification:
    ref = f"{repository.ref}@{digest}"
    signing = None
    if trust is not None:
        host, login = repository.connection.host, repository.connection.login()
        signing = Cosign(cosign.program(progress), host, login)
    files = _chosen(repository, digest, ref, signing, trust)
    findings = [_signature(repository, digest, ref, signing, trust)]
    judges: dict[str, Judge] = {
        statement.REPORT: _report,
        statement.PROVENANCE: _provenance,
        statement.BUILDKIT: _history,
        sbom.PREDICATE: _bill,
    }
    for form, judge in judges.items():
        if form == statement.BUILDKIT and form not in files:
            continue  # of a builder that keeps no history, or that could not be asked
        findings += _judged(form, files.get(form), digest, judge)
        if signing and trust and form in files:
            findings.append(_signed(form, files[form], ref, signing, trust))
    return Verification(ref, tuple(findings))


def _chosen(
    repository: Repository, digest: str, ref: str, signing: Cosign | None, trust: Trust | None
) -> dict[str, bytes]:
    """An attachment of each form, by predicate type: the newest that `trust` signed, or the newest.

    What other tools attached is theirs and is left out.
    """
    found: dict[str, list[bytes]] = {}
    oldest_first = sorted(attachments(repository, digest), key=lambda one: one.annotations.get(CREATED, ""))
    for entry in reversed(oldest_first):
        form = entry.annotations.get(FORM, "")
        if form in _NAMES:
            found.setdefault(form, []).append(content_of(repository, entry.digest))
    chosen = {}
    for form, contents in found.items():
        chosen[form] = contents[0]
        if signing and trust and len(contents) > 1:
            signed = (one for one in contents if signing.attested(ref, trust, form, one))
            chosen[form] = next(signed, contents[0])
    return chosen


Judge = Callable[[bytes, str], Iterable[Finding]]


def _judged(form: str, content: bytes | None, digest: str, judge: Judge) -> list[Finding]:
    """What `judge` finds in an attachment, which anybody may have written: any form may be expected, and none."""
    if content is None:
        return [Finding(_NAMES[form], False, "none is attached")]
    try:
        return list(judge(content, digest))
    except (ValidationError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return [Finding(_NAMES[form], False, "cannot be read: it does not have the form that is published here")]


def _signature(repository: Repository, digest: str, ref: str, signing: Cosign | None, trust: Trust | None) -> Finding:
    if signing is not None and trust is not None:
        good = signing.verified(ref, trust)
        return Finding("signature", good, f"by {trust}" if good else f"no signature by {trust}")
    if repository.head(f"{fallback_tag(digest)}.sig"):
        return Finding("signature", None, "there is one, which was not checked: give --key, or --identity and --issuer")
    return Finding("signature", None, "there is none: this is the word of whoever may push here")


def _signed(form: str, content: bytes, ref: str, signing: Cosign, trust: Trust) -> Finding:
    """Whether `trust` signed just what is attached."""
    what = f"signed {_NAMES[form]}"
    if signing.attested(ref, trust, form, content):
        return Finding(what, True, f"by {trust}, word for word what is attached")
    return Finding(what, False, f"{trust} signed no such {_NAMES[form]}")


def _report(content: bytes, digest: str) -> Iterator[Finding]:
    predicate = statement.predicate(content)
    report = TypeAdapter(Report).validate_python(predicate["report"])
    if not _subject(content) == digest == report.digest:
        yield Finding("report", False, f"is about another image, {report.digest}")
        return
    allowed = set(predicate.get("allowedRed") or ())
    red = {one.id for one in report.checks if one.outcome == "failed" and one.severity == "error"}
    counted = {kind: sum(one.outcome == kind for one in report.checks) for kind in ("passed", "failed", "skipped")}
    counts = ", ".join(f"{number} {kind}" for kind, number in counted.items())
    detail = f"{counts}; measured {report.started} by suite {report.suite.removeprefix('sha256:')[:12]}"
    if red & allowed:
        detail += f"; allowed red by the publisher: {', '.join(sorted(red & allowed))}"
    if red - allowed:
        detail += f"; red: {', '.join(sorted(red - allowed))}"
    yield Finding("report", not red - allowed, detail)
    if report.rehearsal:
        yield Finding("rehearsal", False, f"stand-ins for {', '.join(report.rehearsal)}: this image is not to ship")


def _provenance(content: bytes, digest: str) -> Iterator[Finding]:
    predicate = statement.predicate(content)
    details = predicate["runDetails"]
    programs = ", ".join(f"{name} {version}" for name, version in details["builder"]["version"].items())
    sources = predicate["buildDefinition"]["resolvedDependencies"]
    commit = next((one["digest"]["gitCommit"][:12] for one in sources if "digest" in one), "unknown")
    detail = f"built {details['metadata']['finishedOn']} with {programs} from commit {commit}"
    yield Finding("provenance", _subject(content) == digest, detail)


def _history(content: bytes, digest: str) -> Iterator[Finding]:
    version = json.loads(content)["predicateType"].rpartition("/")[2]
    yield Finding(
        _NAMES[statement.BUILDKIT], _subject(content) == digest, f"every step of the build, as SLSA {version}"
    )


def _bill(content: bytes, digest: str) -> Iterator[Finding]:
    body = json.loads(content)
    about = body["metadata"]["component"]["version"]
    yield Finding("bill of materials", about == digest, f"{len(body['components'])} packages")


def _subject(content: bytes) -> str:
    """The digest that a statement is about."""
    found = json.loads(content)["subject"][0]["digest"]
    return f"sha256:{found['sha256']}"
