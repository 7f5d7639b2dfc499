"""`invoke lock`: write the digests that builds compare, of all that can be reached."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from rich.table import Table

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image, Platform
from rdma_images.core.progress import Progress, silent
from rdma_images.core.sizes import format_bytes
from rdma_images.core.source import UNPINNED, Source
from rdma_images.engine.debian import bootstrap
from rdma_images.facts import Facts
from rdma_images.inputs import availability, fetch, lock, pins, reachable, sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Lock, total_size
from rdma_images.registry.reference import with_registry

PARALLEL = 4  # resolutions and registries at a time: each waits for its index most of the time


Outcome = Literal["new", "changed", "kept", "failed"]


@dataclass(frozen=True)
class LockOutcome:
    """The outcome of one lock."""

    name: str
    outcome: Outcome
    detail: str  # size, digest, or why not


def relock_images(
    images: Iterable[Image], facts: Facts, mirrors: Mirrors, upgrade: bool = False, progress: Progress = silent
) -> tuple[LockOutcome, ...]:
    """Lock wheels, pulled bases, downloads and the builder's tools; return each outcome.

    A lock that fits stays as it is unless `upgrade`. An unreachable source fails alone, and stops nothing else.
    Raises RefusedError for a mirror that names no source.
    """
    images = list(images)
    by_id = {source.id: source for image in images for source in sources.sources(image, facts)}
    availability.require_known_mirrors(by_id.values(), mirrors)
    jobs: dict[str, Callable[[], LockOutcome]] = {}

    def add(name: str, load: Callable[[], Lock], lock_now: Callable[[], Lock]) -> None:
        """Add the job of a lock; images with the same lock share one."""
        jobs.setdefault(name, partial(_lock_wheels, name, load, lock_now, upgrade, progress))

    for image in images:
        if (request := lock.lock_request(image)).requirements:
            make = partial(lock.create_lock, image, mirrors)
            add(request.key, partial(lock.read_image_lock, image), make)
        if image.toolkit:
            request = lock.toolkit_request(image)
            add(request.key, partial(lock.read_lock, request), partial(lock.lock_toolkit, request, mirrors))
    for platform in get_args(Platform):
        make = partial(lock.lock_tools, platform, mirrors)
        add(lock.tools_path(platform).stem, partial(lock.read_tools, platform), make)
    with ThreadPoolExecutor(PARALLEL) as pool:
        outcomes = [job.result() for job in [pool.submit(job) for job in jobs.values()]]
    # One after the other: they share a file.
    outcomes += [
        _lock_base(source, mirrors, upgrade, progress)
        for source in by_id.values()
        if source.kind == "base" and not source.local_name
    ]
    for source in by_id.values():
        if source.kind == "download" and (source.pin == UNPINNED or source.id in pins.downloads()):
            outcomes.append(_lock_download(source, mirrors, upgrade, progress))
    return tuple(outcomes)


def relock_table(outcomes: Iterable[LockOutcome]) -> Table:
    """Return what became of the locks, for a terminal."""
    table = Table("lock", "", "", box=None, pad_edge=False, header_style="bold")
    styles = {"new": "green", "changed": "yellow", "failed": "red"}
    for locked in outcomes:
        table.add_row(locked.name, locked.outcome, locked.detail, style=styles.get(locked.outcome))
    return table


def _lock_wheels(
    name: str, load: Callable[[], Lock], lock_now: Callable[[], Lock], upgrade: bool, progress: Progress
) -> LockOutcome:
    """Keep the lock of wheels that fits, or resolve a new one."""
    earlier_lock = None
    with suppress(RdmaImagesError):  # there is none, or it does not fit any more
        earlier_lock = load()
    if earlier_lock and not upgrade:
        return LockOutcome(name, "kept", format_bytes(total_size(earlier_lock.wheels)))
    progress(f"resolving {name}")
    try:
        return _compare(name, earlier_lock, lock_now())
    except RdmaImagesError as error:
        return LockOutcome(name, "failed", str(error))


def _compare(name: str, earlier_lock: Lock | None, new_lock: Lock) -> LockOutcome:
    if earlier_lock is None:
        return LockOutcome(name, "new", f"{len(new_lock.wheels)} wheels, {format_bytes(total_size(new_lock.wheels))}")
    old_versions = {wheel.name: wheel.version for wheel in earlier_lock.wheels}
    new_versions = {wheel.name: wheel.version for wheel in new_lock.wheels}
    moves = [
        f"{n} {old_versions.get(n, 'none')} -> {new_versions.get(n, 'none')}"
        for n in sorted(old_versions | new_versions)
        if old_versions.get(n) != new_versions.get(n)
    ]
    outcome: Outcome = "kept" if earlier_lock == new_lock else "changed"
    return LockOutcome(name, outcome, ", ".join(moves) or format_bytes(total_size(new_lock.wheels)))


def _lock_base(source: Source, mirrors: Mirrors, upgrade: bool, progress: Progress) -> LockOutcome:
    """Pin the digest that the registry has for a pulled base today."""
    reference = with_registry(mirrors.address(source) or source.upstream)

    def ask() -> str:
        progress(f"asking for {source.upstream}")
        if digest := reachable.registry_digest(reference, mirrors):
            return digest
        raise RdmaImagesError(f"{reference}: the registry has no such image")

    locked = _lock_digest("bases.yaml", source.upstream, pins.bases(), ask, upgrade)
    if locked.outcome == "failed" and bootstrap.is_possible(source.bootstrap, source.platform):
        return LockOutcome(source.upstream, "kept", "not pinned: it is bootstrapped on this host")
    return locked


def _lock_download(source: Source, mirrors: Mirrors, upgrade: bool, progress: Progress) -> LockOutcome:
    """Download a file whose vendor states no digest once, and pin its digest."""
    ask = partial(fetch.fetch_digest, source, mirrors, progress)
    return _lock_digest("downloads.yaml", source.id, pins.downloads(), ask, upgrade)


def _lock_digest(file: str, name: str, pinned: Mapping[str, str], ask: Callable[[], str], upgrade: bool) -> LockOutcome:
    """Keep the digest that a file of pins has, or save the one that is asked for."""
    earlier_digest = pinned.get(name)
    if earlier_digest and not upgrade:
        return LockOutcome(name, "kept", earlier_digest[:19])
    try:
        digest = ask()
    except RdmaImagesError as error:
        return LockOutcome(name, "failed", str(error))
    pins.save(file, {name: digest})
    if earlier_digest and earlier_digest != digest:
        return LockOutcome(name, "changed", f"{earlier_digest[:19]} -> {digest[:19]}")
    return LockOutcome(name, "kept" if earlier_digest else "new", digest[:19])
