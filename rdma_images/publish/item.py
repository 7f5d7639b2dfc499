"""What is to be published: an image with its build, its report, its tags, and what will be attached to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from rdma_images import atomic, paths
from rdma_images.errors import RdmaImagesError, RefusedError
from rdma_images.model import Build, Image, Provenance, Report
from rdma_images.publish import sbom, statement
from rdma_images.publish.attach import Artifact
from rdma_images.publish.client import canonical, digest_of
from rdma_images.publish.gate import Passed
from rdma_images.publish.measured import REVISION
from rdma_images.publish.tags import Tags


@dataclass(frozen=True)
class Item:
    """One image that the gate let pass."""

    image: Image
    build: Build
    report: Report
    tags: Tags
    passed: Passed
    measured: dict[str, str]  # component -> version, inside the image


Form = TypeVar("Form")


def read(image_id: str, file: str, form: type[Form]) -> Form | None:
    """What a step wrote of an image; None where it wrote nothing. Raises RdmaImagesError for a broken file."""
    path = paths.image_folder(image_id) / file
    try:
        return TypeAdapter(form).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RdmaImagesError(f"{path}: {where}: {first['msg']}: build and validate the image again") from None


def build_of(image: Image) -> Build:
    """The image's build. Raises RefusedError where there is none."""
    found = read(image.id, "build.json", Build)
    if found is None:
        raise RefusedError(f"{image.id} is not built: invoke build --target {image.target}")
    return found


def artifacts(item: Item, labels: dict[str, str]) -> tuple[Artifact, ...]:
    """Provenance, bill of materials and report of an image, ready to be attached.

    `labels` are those of the image itself. What is made of them is written down once, beside the image's report: the
    same image gets the same artifacts in every registry and every run.
    """
    name, digest = item.image.target, item.build.digest
    provenance = _kept(item, "provenance.json", lambda: _provenance(item, labels))
    bill = _kept(item, "sbom.cdx.json", lambda: sbom.sbom(name, item.report))
    proof = statement.statement(name, digest, statement.REPORT, statement.report(item.report, item.passed.allowed_red))
    built, measured = item.build.finished, item.report.started
    return (
        Artifact(statement.IN_TOTO, "provenance.json", provenance, built, statement.PROVENANCE),
        *_history(item, name, built),
        Artifact(sbom.CYCLONEDX, "sbom.cdx.json", bill, measured, sbom.PREDICATE),
        Artifact(statement.IN_TOTO, "report.json", proof, measured, statement.REPORT, _verdict(item)),
    )


def _verdict(item: Item) -> str:
    """What the report says beside its times: by which suite, with what outcome of each check, with what allowed."""
    checks = sorted((check.id, check.outcome, check.severity) for check in item.report.checks)
    return digest_of(canonical([item.report.suite, checks, list(item.passed.allowed_red)]))


def _history(item: Item, name: str, built: str) -> Iterator[Artifact]:
    """BuildKit's own record of the build, where it could be read."""
    found = read(item.image.id, "buildkit.json", Provenance)
    if found and found.digest == item.build.digest:
        content = statement.statement(name, found.digest, found.predicate_type, dict(found.predicate))
        yield Artifact(statement.IN_TOTO, "buildkit.json", content, built, statement.BUILDKIT)


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
