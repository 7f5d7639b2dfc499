"""An image that passed the gate, and the artifacts that will be attached to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rdma_images import facts
from rdma_images.bill import cyclonedx_bill, license_texts, parts, spdx_bill
from rdma_images.core import atomic, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Build, Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import BUILD
from rdma_images.engine import Engine
from rdma_images.inputs import sources
from rdma_images.inspection.report import Report
from rdma_images.publish import statement
from rdma_images.publish.attach import Artifact
from rdma_images.publish.report_versions import REVISION
from rdma_images.publish.tags import Tags
from rdma_images.registry.client import canonical, sha256_digest
from rdma_images.scan import scan_statements
from rdma_images.scan.decisions import Decision
from rdma_images.scan.scan_result import Scan


@dataclass(frozen=True)
class ApprovedImage:
    """One image that passed the gate."""

    image: Image
    build: Build
    report: Report
    tags: Tags
    allowed_red: tuple[str, ...]  # failed checks that the user allowed by name
    measured: dict[str, str]  # component -> version, inside the image
    scan: Scan | None = None  # by which a policy let it pass
    decisions: tuple[Decision, ...] = ()  # of the policy, on what the scan found
    is_built_here: bool = True  # else it was validated here alone, and has no provenance
    other_targets: tuple[str, ...] = ()  # the other targets of the matrix, whose images may have the same layers


def read_build(image: Image) -> Build:
    """Return the image's build. Raises RefusedError where there is none."""
    build = BUILD.read(image.id)
    if build is None:
        raise RefusedError(f"{image.id} is not built\nrun `{COMMAND} build {image.options}` first")
    return build


def artifacts(approved: ApprovedImage, labels: dict[str, str]) -> tuple[Artifact, ...]:
    """Return provenance, bill of materials and report of an image, ready to be attached.

    `labels` are those of the image itself. The artifacts are written once, beside the image's report: the same image
    gets the same artifacts in every registry and every run.
    """
    name, digest = approved.image.target, approved.build.digest
    report = statement.statement(
        name, digest, statement.REPORT, statement.report_predicate(approved.report, approved.allowed_red)
    )
    build_finished, validated_at = approved.build.finished, approved.report.started
    if approved.is_built_here:
        provenance = _cached_file(approved, "provenance.json", lambda: _provenance(approved, labels))
        origin = Artifact(statement.IN_TOTO, "provenance.json", provenance, build_finished, statement.PROVENANCE)
    else:
        validation = statement.statement(name, digest, statement.TEST_RESULT, statement.test_result(approved.report))
        origin = Artifact(statement.IN_TOTO, "validation.json", validation, validated_at, statement.TEST_RESULT)
    return (
        origin,
        *_bills(approved, labels),
        Artifact(statement.IN_TOTO, "report.json", report, validated_at, statement.REPORT, _report_edition(approved)),
        *_scan(approved),
    )


def license_archive(approved: ApprovedImage, engine: Callable[[], Engine] | None) -> tuple[Artifact, ...]:
    """Return the licence texts of the image as one artifact, and write them beside its report.

    The artifact is not signed: it has no form, and cosign attests statements alone.

    Args:
        approved: The image.
        engine: Gives the engine that has the image; None returns only what was written before.

    Returns:
        One artifact, or none where the image has no text.

    Raises:
        RdmaImagesError: The engine does not hand out the image's files.
    """
    path = paths.image_folder(approved.image.id) / license_texts.NAME
    content = path.read_bytes() if path.is_file() else b""
    if approved.build.digest.removeprefix("sha256:").encode() not in content[:128]:  # gzip's header has the name
        if engine is None:
            return ()
        listed = parts.list_parts(approved.report, approved.image if approved.is_built_here else None)
        content = license_texts.pack(engine(), approved.build.digest, listed)
        if not content:
            return ()
        with atomic.replacing(path) as temporary:
            temporary.write_bytes(content)
    return (Artifact(license_texts.MEDIA_TYPE, license_texts.NAME, content, approved.report.started),)


def _bills(approved: ApprovedImage, labels: dict[str, str]) -> Iterator[Artifact]:
    """Yield the bill of materials in both forms."""
    name, report = approved.image.target, approved.report
    listed = parts.list_parts(report, approved.image if approved.is_built_here else None, labels)
    for title, media_type, form, write_bill in (
        ("sbom.cdx.json", cyclonedx_bill.CYCLONEDX, cyclonedx_bill.PREDICATE, cyclonedx_bill.cyclonedx_bill),
        ("sbom.spdx.json", spdx_bill.SPDX, spdx_bill.PREDICATE, spdx_bill.spdx_bill),
    ):
        document = write_bill(name, report, listed)
        atomic.write(paths.image_folder(approved.image.id) / title, document.decode())
        yield Artifact(media_type, title, document, report.started, form)


def _scan(approved: ApprovedImage) -> Iterator[Artifact]:
    """Yield the scan by which a policy let the image pass, and the policy's statements on it."""
    if approved.scan is None:
        return
    name, digest = approved.image.target, approved.build.digest
    predicate = scan_statements.vulnerability_predicate(approved.scan, approved.decisions)
    documents = {
        "vulnerabilities.json": (scan_statements.VULNERABILITIES, predicate),
        "openvex.json": (
            scan_statements.OPENVEX,
            scan_statements.openvex(name, digest, approved.scan, approved.decisions),
        ),
    }
    for title, (form, document) in documents.items():
        if document is not None:
            content = statement.statement(name, digest, form, document)
            yield Artifact(statement.IN_TOTO, title, content, approved.scan.finished, form, sha256_digest(content))


def _report_edition(approved: ApprovedImage) -> str:
    """Return a digest of the report without its times: suite, outcomes, allowed failures."""
    checks = sorted((check.id, check.outcome, check.severity) for check in approved.report.checks)
    return sha256_digest(canonical([approved.report.suite, checks, list(approved.allowed_red)]))


def _cached_file(approved: ApprovedImage, file: str, create: Callable[[], bytes]) -> bytes:
    """Return `file` of the image's folder, made and written unless it is about this digest."""
    path = paths.image_folder(approved.image.id) / file
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    if approved.build.digest.removeprefix("sha256:").encode() in content:
        return content
    created = create()
    atomic.write(path, created.decode())
    return created


def _provenance(approved: ApprovedImage, labels: dict[str, str]) -> bytes:
    revision = {
        "repository": labels.get("org.opencontainers.image.source", ""),
        "commit": labels.get(REVISION, ""),
    }
    pinned = sources.pinned(approved.image, facts.load())
    predicate = statement.provenance(approved.image, approved.build, revision, pinned)
    return statement.statement(approved.image.target, approved.build.digest, statement.PROVENANCE, predicate)
