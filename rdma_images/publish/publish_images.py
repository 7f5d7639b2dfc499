"""Publish images to registries: the gate first, then every image everywhere, and short tags at the very end."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.pipeline import Image
from rdma_images.inspection.report import Report
from rdma_images.plan.matrix import Matrix
from rdma_images.publish import gate, publication
from rdma_images.publish.approved_image import ApprovedImage, read_build
from rdma_images.publish.destination import Destination, open_destination
from rdma_images.publish.publication import Publication, PublishedCopy
from rdma_images.publish.send import Publisher, is_published, move_tags, send
from rdma_images.publish.tags import image_tags, measured_versions
from rdma_images.registry.registries import Registry
from rdma_images.report.report_files import REPORT
from rdma_images.scan.decisions import require
from rdma_images.scan.policy import Policy
from rdma_images.scan.scan_result import SCAN

_AT_ONCE = 4  # images that are looked at side by side; pushes go one at a time


@dataclass(frozen=True)
class PublishResult:
    """The result for one image in one registry: a copy, and what went wrong (after the image was there, if both)."""

    image_id: str
    registry: str
    copy: PublishedCopy | None = None
    error: str = ""


def approved_images(
    images: Sequence[Image],
    all_images: Sequence[Image],
    matrix: Matrix,
    suite: str,
    allow_red: Sequence[str] = (),
    policy: Policy | None = None,
) -> tuple[ApprovedImage, ...]:
    """Return the images to publish, each through the gate; asks no registry.

    Args:
        all_images: The images of the whole matrix, which decide short tags and platforms.
        suite: The digest of today's validators.
        policy: By which each image's scan has to pass; None where none is asked for.

    Raises:
        RefusedError: For the first image that may not pass.
    """
    reports = {image.id: REPORT.read(image.id) for image in images}
    gate.check_exceptions([report for report in reports.values() if report], allow_red)
    for image in images:
        _require_licenses(image, reports[image.id], matrix)
    items = tuple(_item(image, reports[image.id], all_images, matrix, suite, allow_red) for image in images)
    return with_decisions(items, policy)


def with_decisions(items: tuple[ApprovedImage, ...], policy: Policy | None) -> tuple[ApprovedImage, ...]:
    """Return the items with what a policy decided of their scans. Raises RefusedError for one that may not pass."""
    return tuple(_scanned(item, policy) for item in items) if policy else items


def _item(
    image: Image,
    report: Report | None,
    all_images: Sequence[Image],
    matrix: Matrix,
    suite: str,
    allow_red: Sequence[str],
) -> ApprovedImage:
    build = read_build(image)
    allowed_red = gate.approve(build, report, suite, allow_red)
    assert report is not None
    return ApprovedImage(
        image=image,
        build=build,
        report=report,
        tags=image_tags(image, all_images, matrix, rehearsal=bool(build.rehearsal)),
        allowed_red=allowed_red,
        measured=measured_versions(image, report),
        other_targets=tuple(sorted({other.target for other in all_images} - {image.target})),
    )


def _require_licenses(image: Image, report: Report | None, matrix: Matrix) -> None:
    """Raise RefusedError where a package is under a licence that the image's target denies."""
    target = matrix.targets.get(image.target)
    if report is None or target is None or target.licenses is None:
        return
    from rdma_images.bill.parts import parts
    from rdma_images.core import spdx

    denied = frozenset(target.licenses.deny)
    refused = [part for part in parts(report) if spdx.is_denied(part.license, denied)]
    if refused:
        listed = ", ".join(f"{part.name} is under {part.license}" for part in refused[:3])
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        raise RefusedError(
            f"{image.id}: {listed}{more}, which the target denies\nleave the package out, or change `licenses`"
        )


def _scanned(item: ApprovedImage, policy: Policy) -> ApprovedImage:
    """Return the item with its scan and the policy's decisions, where these let it pass."""
    scan = SCAN.read(item.image.id)
    decisions = require(item.image.id, scan, item.build.digest, policy, datetime.now(UTC).date())
    return replace(item, scan=scan, decisions=decisions)


def publish(
    items: Sequence[ApprovedImage], registries: Mapping[str, Registry], publisher: Publisher
) -> tuple[PublishResult, ...]:
    """Publish every item to every registry, and write each image's publication.json.

    A registry or an image that fails stops no other; the answer has the result of each.
    """
    for registry in registries.values():
        for item in items:
            gate.check_rehearsal_host(item.build, getattr(registry, "host", None) or registry.kind)
    results: list[PublishResult] = []
    with publisher.watcher:
        for name, registry in registries.items():
            try:
                destination = open_destination(name, registry)
                publisher.retry(destination.connection.check)
            except RdmaImagesError as error:
                results += [PublishResult(item.image.id, name, error=str(error)) for item in items]
                continue
            results += _publish_to(items, destination, publisher)
    return tuple(results)


def _publish_to(items: Sequence[ApprovedImage], destination: Destination, publisher: Publisher) -> list[PublishResult]:
    """Publish all items to one registry; short tags of a target move when all its images have arrived."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # A conversion reads a whole image: one at a time, like a push.
        candidates = () if publisher.converter else items
        present = [
            item
            for item, is_present in zip(
                candidates, pool.map(partial(_is_published, destination), candidates), strict=True
            )
            if is_present
        ]
        early = {result.image_id: result for result in pool.map(partial(_send, destination, publisher), present)}
    # One at a time, and in this thread: docker is parallel within a push, layers that two images share would be sent
    # twice by two, and Ctrl-C ends a push only from here.
    results = [early.get(item.image.id) or _send(destination, publisher, item) for item in items]
    broken = {item.image.target for item, result in zip(items, results, strict=True) if result.copy is None}
    finished = []
    for item, result in zip(items, results, strict=True):
        copy = result.copy
        if copy is not None and item.image.target not in broken:
            with_tags = _capture_error(item, destination, partial(move_tags, item, copy, destination, publisher))
            copy = with_tags.copy or copy
            result = replace(with_tags, copy=copy)
        if copy is not None:
            publication.write(_publication(item, copy))
        finished.append(result)
    return finished


def _is_published(destination: Destination, item: ApprovedImage) -> bool:
    """Return `send.is_published`, and False where that fails: sending asks again, and reports what goes wrong."""
    try:
        return is_published(item, destination)
    except RdmaImagesError:
        return False


def _send(destination: Destination, publisher: Publisher, item: ApprovedImage) -> PublishResult:
    return _capture_error(item, destination, partial(send, item, destination, publisher))


def _capture_error(item: ApprovedImage, destination: Destination, action: Callable[[], PublishedCopy]) -> PublishResult:
    try:
        return PublishResult(item.image.id, destination.name, copy=action())
    except RdmaImagesError as error:
        return PublishResult(item.image.id, destination.name, error=str(error))


def _publication(item: ApprovedImage, copy: PublishedCopy) -> Publication:
    image = item.image
    return Publication(
        image_id=image.id,
        target=image.target,
        fabric=image.fabric,
        digest=item.build.digest,
        platform=image.platform,
        versions={name: component.version for name, component in sorted(image.components.items())},
        measured=item.measured,
        requires={requirement.name: requirement.at_least for requirement in image.requirements},
        suite=item.report.suite,
        allowed_red=item.allowed_red,
        rehearsal=item.build.rehearsal,
        copies={copy.registry: copy},
    )
