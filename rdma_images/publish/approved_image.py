"""An image that passed the gate, and the artifacts that will be attached to it."""

from collections.abc import Iterator
from dataclasses import dataclass

from rdma_images import facts
from rdma_images.core import atomic, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord, Image, KnownImage
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.inputs import sources
from rdma_images.inspection.report import Report
from rdma_images.publish import statement
from rdma_images.publish.attach import Artifact
from rdma_images.publish.evidence import bill
from rdma_images.publish.evidence.policy import VULNERABILITIES, Decision, vulnerability_predicate
from rdma_images.publish.evidence.scan_result import Scan
from rdma_images.publish.report_versions import REVISION
from rdma_images.publish.tags import Tags
from rdma_images.registry.client import canonical, sha256_digest
from rdma_images.report.report_files import REPORT


@dataclass(frozen=True)
class ApprovedImage:
    """One image that passed the gate."""

    image: KnownImage
    build: BuildRecord
    report: Report
    tags: Tags
    allowed_failed: tuple[str, ...]  # failed checks that the user allowed by name
    measured: dict[str, str]  # component -> version, inside the image
    scan: Scan | None = None  # by which a policy let it pass
    decisions: tuple[Decision, ...] = ()  # of the policy, on what the scan found
    other_targets: tuple[str, ...] = ()  # the other targets of the matrix, whose images may have the same layers

    @property
    def planned(self) -> Image | None:
        """Return the image as it was planned; None for one that was validated here alone, and has no provenance."""
        return self.image if isinstance(self.image, Image) else None


def read_build(image: Image) -> BuildRecord:
    """Return the image's build. Raises RefusedError if it was not built."""
    build = BUILD_FILE.read(image.id)
    if build is None:
        raise RefusedError(f"{image.id} is not built\nrun `{COMMAND} build {image.options}` first")
    return build


def read_report(image: Image) -> Report:
    """Return the image's report. Raises RefusedError if it was not validated."""
    report = REPORT.read(image.id)
    if report is None:
        raise RefusedError(f"{image.id} was never validated\nrun `{COMMAND} validate {image.options}` first")
    return report


def artifacts(approved: ApprovedImage, labels: dict[str, str]) -> tuple[Artifact, ...]:
    """Return provenance, bill of materials and report of an image, ready to be attached.

    `labels` are those of the image itself. The same build and report give the same artifacts.
    """
    name, digest = approved.image.target, approved.build.digest
    report = statement.in_toto_statement(
        name, digest, statement.REPORT, statement.report_predicate(approved.report, approved.allowed_failed)
    )
    build_finished, validated_at = approved.build.finished, approved.report.started
    if planned := approved.planned:
        provenance = _provenance(planned, approved.build, labels)
        origin = Artifact(statement.IN_TOTO, "provenance.json", provenance, build_finished, statement.PROVENANCE)
    else:
        validation = statement.in_toto_statement(
            name, digest, statement.TEST_RESULT, statement.test_result(approved.report)
        )
        origin = Artifact(statement.IN_TOTO, "validation.json", validation, validated_at, statement.TEST_RESULT)
    return (
        origin,
        _bill(approved, labels),
        Artifact(statement.IN_TOTO, "report.json", report, validated_at, statement.REPORT, _report_digest(approved)),
        *_scan(approved),
    )


def _bill(approved: ApprovedImage, labels: dict[str, str]) -> Artifact:
    """Return the bill of materials, which is also written beside the report."""
    name, report = approved.image.target, approved.report
    parts = bill.list_entries(report, approved.planned, labels)
    document = bill.cyclonedx_bill(name, report, parts)
    atomic.write(paths.image_folder(approved.image.id) / "sbom.cdx.json", document.decode())
    return Artifact(bill.CYCLONEDX, "sbom.cdx.json", document, report.started, bill.PREDICATE)


def _scan(approved: ApprovedImage) -> Iterator[Artifact]:
    """Yield the scan by which a policy let the image pass."""
    if approved.scan is not None:
        predicate = vulnerability_predicate(approved.scan, approved.decisions)
        content = statement.in_toto_statement(approved.image.target, approved.build.digest, VULNERABILITIES, predicate)
        yield Artifact(
            type=statement.IN_TOTO,
            title="vulnerabilities.json",
            content=content,
            created=approved.scan.finished.isoformat(),
            predicate_type=VULNERABILITIES,
            content_digest=sha256_digest(content),
        )


def _report_digest(approved: ApprovedImage) -> str:
    """Return a digest of the report without its times: suite, outcomes, allowed failures."""
    checks = sorted((check.id, check.outcome, check.severity) for check in approved.report.checks)
    return sha256_digest(canonical([approved.report.suite, checks, list(approved.allowed_failed)]))


def _provenance(image: Image, build: BuildRecord, labels: dict[str, str]) -> bytes:
    revision = {"repository": labels.get("org.opencontainers.image.source", ""), "commit": labels.get(REVISION, "")}
    pinned = sources.pinned(image, facts.load())
    predicate = statement.provenance(image, build, revision, pinned)
    return statement.in_toto_statement(image.target, build.digest, statement.PROVENANCE, predicate)
