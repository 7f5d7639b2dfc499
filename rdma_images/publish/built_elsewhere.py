"""Approve images that were built elsewhere and validated here, without provenance."""

import re
from collections.abc import Sequence
from typing import cast, get_args

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord, Component, Fabric, KnownImage, Platform
from rdma_images.core.paths import COMMAND
from rdma_images.inspection.report import Report
from rdma_images.publish import gate, report_versions
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.tags import REHEARSAL, Tags
from rdma_images.report.report_files import REPORT, report_folder

# Source: the reference grammar of github.com/distribution/reference, a path component.
NOT_IN_TAGS = re.compile(r"[^a-z0-9._-]+")


def approved_images(refs: Sequence[str], suite: str, allow_failed: Sequence[str]) -> tuple[ApprovedImage, ...]:
    """Return the images `refs` of the engine that pass the gate; asks no registry.

    Args:
        refs: As `validate --image` had them.
        suite: The digest of today's validators.
        allow_failed: Ids of checks that may fail.

    Raises:
        RefusedError: For the first image that may not pass.
    """
    reports = {ref: read_report(ref) for ref in refs}
    gate.require_known_failures(list(reports.values()), allow_failed, is_built_here=False)
    return tuple(_approve(ref, report, suite, allow_failed) for ref, report in reports.items())


def read_report(ref: str) -> Report:
    """Return the report of the image `ref`. Raises RefusedError if it was not validated here."""
    report = REPORT.read(report_folder(ref).name)
    if report is None or report.inspection is None:
        raise RefusedError(f"{ref} was not validated here\nrun `{COMMAND} validate --image {ref}` first")
    return report


def _approve(ref: str, report: Report, suite: str, allow_failed: Sequence[str]) -> ApprovedImage:
    assert report.inspection
    measured = report_versions.versions(report)
    name, tag = _name_and_tag(ref, report.digest)
    platform, known = report_versions.platform(report), get_args(Platform)
    if platform not in known:
        raise RefusedError(
            f"{ref}: {platform} is no platform that images are published for: {', '.join(known)}\n"
            "publish it with the tools of its builder"
        )
    image = KnownImage(
        id=report_folder(ref).name,
        target=name,
        fabric=cast(Fabric, report.inspection.expected.fabric or "none"),
        platform=cast(Platform, platform),
        components={component: Component(component, version, "measured") for component, version in measured.items()},
    )
    # Only a build knows the other fields: they stay empty.
    build = BuildRecord(image.id, ref, report.digest, "", report.stand_ins, report.inspection.subject.created, 0.0)
    ending = REHEARSAL if report.stand_ins and not tag.endswith(REHEARSAL) else ""
    return ApprovedImage(
        image=image,
        build=build,
        report=report,
        tags=Tags(tag + ending),
        allowed_failed=gate.require_publishable(
            build, report, suite, f"--image {ref}", allow_failed, is_built_here=False
        ),
        measured=measured,
    )


def _name_and_tag(ref: str, digest: str) -> tuple[str, str]:
    """Return the repository's name, and the tag: the image's own, or from its digest."""
    name, _, tag = ref.partition("@")[0].rpartition("/")[2].partition(":")
    return NOT_IN_TAGS.sub("-", name.lower()).strip("-._") or "image", tag or digest.removeprefix("sha256:")[:12]
