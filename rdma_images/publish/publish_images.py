"""Images to registries: the gate first, then every image everywhere, and short tags at the very end."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.pipeline import Image
from rdma_images.inspection.report import Report
from rdma_images.plan.matrix import Matrix
from rdma_images.publish import gate, publication
from rdma_images.publish.destination import Destination, destination
from rdma_images.publish.item import Item, build_of
from rdma_images.publish.publication import Place, Publication
from rdma_images.publish.send import Publisher, is_there, move_tags, send
from rdma_images.publish.tags import confirm, tags
from rdma_images.registry.registries import Registry
from rdma_images.report.files import REPORT

_AT_ONCE = 4  # images that are looked at side by side; pushes go one at a time


@dataclass(frozen=True)
class Outcome:
    """What became of one image in one registry: a place, and what went wrong (after the image was there, if both)."""

    image_id: str
    registry: str
    place: Place | None = None
    error: str = ""


def items(
    images: Sequence[Image], whole: Sequence[Image], matrix: Matrix, suite: str, allow_red: Sequence[str] = ()
) -> tuple[Item, ...]:
    """The images to publish, each through the gate; asks no registry.

    `whole` are the images of the whole matrix, which decide short tags and platforms; `suite` is the digest of
    today's validators. Raises RefusedError for the first image that may not pass.
    """
    reports = {image.id: REPORT.read(image.id) for image in images}
    gate.check_exceptions([one for one in reports.values() if one], allow_red)
    return tuple(_item(image, reports[image.id], whole, matrix, suite, allow_red) for image in images)


def _item(
    image: Image, report: Report | None, whole: Sequence[Image], matrix: Matrix, suite: str, allow_red: Sequence[str]
) -> Item:
    build = build_of(image)
    passed = gate.check(build, report, suite, allow_red)
    assert report is not None
    return Item(
        image=image,
        build=build,
        report=report,
        tags=tags(image, whole, matrix, rehearsal=bool(build.rehearsal)),
        passed=passed,
        measured=confirm(image, report),
        beside=tuple(sorted({one.target for one in whole} - {image.target})),
    )


def publish(found: Sequence[Item], registries: Mapping[str, Registry], publisher: Publisher) -> tuple[Outcome, ...]:
    """Publish every item to every registry, and write each image's publication.json.

    A registry or an image that fails stops no other; the outcome of each is in the answer.
    """
    for registry in registries.values():
        for item in found:
            gate.check_place(item.build, getattr(registry, "host", None) or registry.kind)
    outcomes: list[Outcome] = []
    with publisher.watcher:
        for name, registry in registries.items():
            try:
                place = destination(name, registry)
                publisher.retry(place.connection.check)
            except RdmaImagesError as error:
                outcomes += [Outcome(item.image.id, name, error=str(error)) for item in found]
                continue
            outcomes += _to_one(found, place, publisher)
    return tuple(outcomes)


def _to_one(found: Sequence[Item], place: Destination, publisher: Publisher) -> list[Outcome]:
    """All items to one registry; short tags of a target move when all its images have arrived."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        there = [item for item, yes in zip(found, pool.map(partial(_there, place), found), strict=True) if yes]
        known = {outcome.image_id: outcome for outcome in pool.map(partial(_sent, place, publisher), there)}
    # One at a time, and in this thread: docker is parallel within a push, layers that two images share would be sent
    # twice by two, and Ctrl-C ends a push only from here.
    sent = [known.get(item.image.id) or _sent(place, publisher, item) for item in found]
    broken = {item.image.target for item, outcome in zip(found, sent, strict=True) if outcome.place is None}
    finished = []
    for item, outcome in zip(found, sent, strict=True):
        arrived = outcome.place
        if arrived is not None and item.image.target not in broken:
            moved = _caught(item, place, partial(move_tags, item, arrived, place, publisher))
            arrived = moved.place or arrived
            outcome = replace(moved, place=arrived)
        if arrived is not None:
            publication.write(_publication(item, arrived))
        finished.append(outcome)
    return finished


def _there(place: Destination, item: Item) -> bool:
    """`is_there`; sending asks again, and reports what goes wrong."""
    try:
        return is_there(item, place)
    except RdmaImagesError:
        return False


def _sent(place: Destination, publisher: Publisher, item: Item) -> Outcome:
    return _caught(item, place, partial(send, item, place, publisher))


def _caught(item: Item, place: Destination, action: Callable[[], Place]) -> Outcome:
    try:
        return Outcome(item.image.id, place.name, place=action())
    except RdmaImagesError as error:
        return Outcome(item.image.id, place.name, error=str(error))


def _publication(item: Item, place: Place) -> Publication:
    image = item.image
    return Publication(
        image_id=image.id,
        target=image.target,
        fabric=image.fabric,
        digest=item.build.digest,
        platform=image.platform,
        versions={name: component.version for name, component in sorted(image.components.items())},
        measured=item.measured,
        requires={one.what: one.at_least for one in image.requirements},
        suite=item.report.suite,
        allowed_red=item.passed.allowed_red,
        rehearsal=item.build.rehearsal,
        places={place.registry: place},
    )
