"""Publish images: the gate first, then each image everywhere, at the end short tags."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.plan.matrix import Matrix
from rdma_images.publish import gate, publication
from rdma_images.publish.approved_image import ApprovedImage, read_build, read_report
from rdma_images.publish.destination import Destination, open_destination
from rdma_images.publish.evidence.policy import Policy, require_passed
from rdma_images.publish.evidence.scan_result import SCAN
from rdma_images.publish.publication import Publication, PublishedCopy
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.send import move_tags, send
from rdma_images.publish.tags import image_tags, measured_versions
from rdma_images.registry.registries import Registry


@dataclass(frozen=True)
class PublishResult:
    """The result for one image in one registry: a copy, an error, or both."""

    image_id: str
    registry: str
    copy: PublishedCopy | None = None
    error: str = ""


def approved_images(
    images: Sequence[Image], all_images: Sequence[Image], matrix: Matrix, suite: str, allow_failed: Sequence[str] = ()
) -> tuple[ApprovedImage, ...]:
    """Return the images to publish, each through the gate; asks no registry.

    Args:
        all_images: The images of the whole matrix, which decide short tags and platforms.
        suite: The digest of today's validators.

    Raises:
        RefusedError: For the first image that may not pass.
    """
    builds = [read_build(image) for image in images]
    reports = [read_report(image) for image in images]
    gate.require_known_failures(reports, allow_failed)
    return tuple(
        ApprovedImage(
            image=image,
            build=build,
            report=report,
            tags=image_tags(image, all_images, matrix, rehearsal=bool(build.stand_ins)),
            allowed_failed=gate.require_publishable(build, report, suite, image.options, allow_failed),
            measured=measured_versions(image, report),
            other_targets=tuple(sorted({other.target for other in all_images} - {image.target})),
        )
        for image, build, report in zip(images, builds, reports, strict=True)
    )


def with_decisions(images: tuple[ApprovedImage, ...], policy: Policy | None) -> tuple[ApprovedImage, ...]:
    """Return the images with the policy's decisions. Raises RefusedError for a denied one."""
    if policy is None:
        return images
    decided = []
    for approved in images:
        scan = SCAN.read(approved.image.id)
        decisions = require_passed(approved.image.id, scan, approved.build.digest, policy, datetime.now(UTC).date())
        decided.append(replace(approved, scan=scan, decisions=decisions))
    return tuple(decided)


def publish(
    images: Sequence[ApprovedImage], registries: Mapping[str, Registry], publisher: Publisher
) -> tuple[PublishResult, ...]:
    """Publish every image to every registry, write publication.json, return the results.

    A registry or an image that fails stops no other; the answer has the result of each.
    """
    for registry in registries.values():
        for approved in images:
            gate.check_rehearsal_host(approved.build, getattr(registry, "host", None) or registry.kind)
    results: list[PublishResult] = []
    for name, registry in registries.items():
        try:
            destination = open_destination(name, registry)
            publisher.retry(destination.connection.check)
        except RdmaImagesError as error:
            results += [PublishResult(approved.image.id, name, error=str(error)) for approved in images]
            continue
        results += _publish_to(images, destination, publisher)
    return tuple(results)


def _publish_to(images: Sequence[ApprovedImage], destination: Destination, publisher: Publisher) -> list[PublishResult]:
    """Publish images to one registry; a target's short tags move once all have arrived."""
    # One at a time, and in this thread: docker is parallel within a push, layers that two images share would be sent
    # twice by two, and Ctrl-C ends a push only from here.
    results = [
        _capture_error(approved, destination, partial(send, approved, destination, publisher)) for approved in images
    ]
    incomplete_targets = {
        approved.image.target for approved, result in zip(images, results, strict=True) if result.copy is None
    }
    final_results = []
    for approved, result in zip(images, results, strict=True):
        copy = result.copy
        if copy is not None and approved.image.target not in incomplete_targets:
            tag_result = _capture_error(
                approved, destination, partial(move_tags, approved, copy, destination, publisher)
            )
            copy = tag_result.copy or copy
            result = replace(tag_result, copy=copy)
        if copy is not None:
            publication.write(_publication(approved, copy))
        final_results.append(result)
    return final_results


def _capture_error(
    approved: ApprovedImage, destination: Destination, action: Callable[[], PublishedCopy]
) -> PublishResult:
    try:
        return PublishResult(approved.image.id, destination.name, copy=action())
    except RdmaImagesError as error:
        return PublishResult(approved.image.id, destination.name, error=str(error))


def _publication(approved: ApprovedImage, copy: PublishedCopy) -> Publication:
    image = approved.image
    return Publication(
        image_id=image.id,
        target=image.target,
        fabric=image.fabric,
        digest=approved.build.digest,
        platform=image.platform,
        versions={name: component.version for name, component in sorted(image.components.items())},
        measured=approved.measured,
        requires={requirement.name: requirement.at_least for requirement in image.requirements},
        suite=approved.report.suite,
        allowed_failed=approved.allowed_failed,
        stand_ins=approved.build.stand_ins,
        copies={copy.registry: copy},
    )
