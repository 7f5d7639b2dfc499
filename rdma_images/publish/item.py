"""What is to be published: an image with its build, its report, its tags, and what will be attached to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rdma_images.core import atomic, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.pipeline import Build, Image
from rdma_images.core.step_files import BUILD, HISTORY
from rdma_images.inspection.report import Report
from rdma_images.publish import sbom, statement
from rdma_images.publish.attach import Artifact
from rdma_images.publish.from_report import REVISION
from rdma_images.publish.gate import Passed
from rdma_images.publish.tags import Tags
from rdma_images.registry.client import canonical, digest_of


@dataclass(frozen=True)
class Item:
    """One image that the gate let pass."""

    image: Image
    build: Build
    report: Report
    tags: Tags
    passed: Passed
    measured: dict[str, str]  # component -> version, inside the image
    beside: tuple[str, ...] = ()  # the other targets of the matrix, whose images may have the same layers


def build_of(image: Image) -> Build:
    """The image's build. Raises RefusedError where there is none."""
    found = BUILD.read(image.id)
    if found is None:
        raise RefusedError(f"{image.id} is not built\nrun `{COMMAND} build --target {image.target}` first")
    return found


def artifacts(item: Item, labels: dict[str, str]) -> tuple[Artifact, ...]:
    """Provenance, bill of materials and report of an image, ready to be attached.

    `labels` are those of the image itself. What is made of them is written down once, beside the image's report: the
    same image gets the same artifacts in every registry and every run.
    """
    name, digest = item.image.target, item.build.digest
    provenance = _kept(item, "provenance.json", lambda: _provenance(item, labels))
    bill = _kept(item, "sbom.cdx.json", lambda: sbom.sbom(name, item.report))
    report = statement.statement(name, digest, statement.REPORT, statement.report(item.report, item.passed.allowed_red))
    built, measured = item.build.finished, item.report.started
    return (
        Artifact(statement.IN_TOTO, "provenance.json", provenance, built, statement.PROVENANCE),
        *_history(item, name, built),
        Artifact(sbom.CYCLONEDX, "sbom.cdx.json", bill, measured, sbom.PREDICATE),
        Artifact(statement.IN_TOTO, "report.json", report, measured, statement.REPORT, _verdict(item)),
    )


def _verdict(item: Item) -> str:
    """What the report says beside its times: by which suite, with what outcome of each check, with what allowed."""
    checks = sorted((check.id, check.outcome, check.severity) for check in item.report.checks)
    return digest_of(canonical([item.report.suite, checks, list(item.passed.allowed_red)]))


def _history(item: Item, name: str, built: str) -> Iterator[Artifact]:
    """BuildKit's own record of the build, where it could be read."""
    found = HISTORY.read(item.image.id)
    if found and found.digest == item.build.digest:
        content = statement.statement(name, found.digest, found.predicate_type, dict(found.predicate))
        yield Artifact(statement.IN_TOTO, HISTORY.name, content, built, statement.BUILDKIT)


def _kept(item: Item, file: str, make: Callable[[], bytes]) -> bytes:
    """The content of `file` in the image's folder when it is about this digest; else made, and kept there."""
    path = paths.image_folder(item.image.id) / file
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    if item.build.digest.removeprefix("sha256:").encode() in found:
        return found
    made = make()
    atomic.write(path, made.decode())
    return made


def _provenance(item: Item, labels: dict[str, str]) -> bytes:
    revision = {
        "repository": labels.get("org.opencontainers.image.source", ""),
        "commit": labels.get(REVISION, ""),
    }
    predicate = statement.provenance(item.image, item.build, revision)
    return statement.statement(item.image.target, item.build.digest, statement.PROVENANCE, predicate)
