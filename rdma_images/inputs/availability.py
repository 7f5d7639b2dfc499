"""Where each download of a build can come from (upstream, mirror, cache, stand-in), asked within seconds."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from rdma_images.components import package
from rdma_images.components.base import BaseDetails
from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Component, Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.sizes import format_bytes
from rdma_images.core.source import UNPINNED, Source, Supply
from rdma_images.core.versions import satisfies
from rdma_images.engine.debian import bootstrap
from rdma_images.facts import Facts
from rdma_images.inputs import download_store
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.sources import COMPONENTS, source_of_base
from rdma_images.registry.reference import with_registry

if TYPE_CHECKING:
    from rdma_images.inputs.reachable import Reachability

Via = Literal["upstream", "mirror", "stand-in", "bootstrap", "cache"]
Route = tuple[Via, str]  # and the address
IMAGE_SCHEME = "docker-image://"  # how BuildKit names a pulled image that is a build context
PROBE_PROJECT = "uv"  # what every build takes from the package index


class UnreachableSourcesError(RefusedError):
    """Sources that do not answer. Carries all supplies, so that the whole table can be shown."""

    def __init__(self, supplies: Sequence[Supply]) -> None:
        self.supplies = tuple(supplies)
        missing = [supply for supply in _unique(supplies) if not supply.reachable]
        lines = [f"  {supply.source.id}: {supply.address or 'no address'}: {supply.detail}" for supply in missing]
        replaceable = [supply.source.id for supply in missing if has_stand_in(supply.source)]
        unlocked = sum(supply.detail.startswith(UNPINNED) for supply in missing)
        counts = {"unreachable": len(missing) - unlocked, UNPINNED: unlocked}
        remedies = ["name an address that answers in mirrors.yaml, as `sources: {ID: ADDRESS}`"]
        if unlocked:
            remedies.append(f"lock what is not locked: `{COMMAND} lock`")
        if len(replaceable) == len(missing):
            remedies.append(f"build with stand-ins for {', '.join(replaceable)}, not to be published: `--rehearse`")
        super().__init__(
            ", ".join(f"{count} {state}" for state, count in counts.items() if count)
            + f" of {len(_unique(supplies))} sources:\n"
            + "\n".join(lines)
            + "\nOptions: "
            + "; or ".join(remedies)
        )

    def details(self) -> object:
        """Return every source, also those that answer."""
        return supply_table(self.supplies)


def require_known_mirrors(sources: Iterable[Source], mirrors: Mirrors) -> None:
    """Raise RefusedError for a mirror that names no source of any image."""
    mirrors.check([*COMPONENTS, *(name for source in sources for name in (source.component, source.id))])


def find_supplies(sources: Iterable[Source], mirrors: Mirrors, rehearse: bool = False) -> tuple[Supply, ...]:
    """Return, for each source, the address that it comes from and the answer of that address.

    With `rehearse`, unreachable sources that have a stand-in are replaced by it, and no others. Raises RefusedError
    for a mirror that names no source; `require_reachable` raises for what is unreachable.
    """
    sources = list(sources)
    require_known_mirrors(sources, mirrors)
    routes = [(_route(source, mirrors), source) for source in sources]
    answers = _query_all(routes, mirrors)
    supplies = [
        _explain_pull(Supply(source, via, address, *answers[_query_key((via, address), source)]))
        for (via, address), source in routes
    ]
    unreachable_groups = {
        _replacement_group(s.source) for s in supplies if rehearse and not s.reachable and has_stand_in(s.source)
    }
    return tuple(_stand_in(s) if _replacement_group(s.source) in unreachable_groups else s for s in supplies)


def require_reachable(supplies: Sequence[Supply]) -> None:
    """Raise UnreachableSourcesError unless every source has an answer."""
    if not all(supply.reachable for supply in supplies):
        raise UnreachableSourcesError(supplies)


def is_locked(source: Source, mirrors: Mirrors) -> bool:
    """Return whether the source has a pin for a build on this machine; uses no network."""
    return _has_pin(_route(source, mirrors), source)


def has_stand_in(source: Source) -> bool:
    """Return whether a rehearsal can replace this source."""
    if source.kind == "base":
        return bool(source.stand_in) and bootstrap.is_possible(source.stand_in, source.platform)
    return bool(source.stand_in) or paths.find_data(f"dockerfiles/stand-ins/{source.component}").is_dir()


def stand_in_ids(supplies: Iterable[Supply]) -> tuple[str, ...]:
    """Return the ids of the sources that stand-ins replace."""
    return tuple(sorted({supply.source.id for supply in supplies if supply.via == "stand-in"}))


def supply_table(supplies: Sequence[Supply]) -> Table:
    """Return the supplies for a terminal."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("source", "pin", "via", "address", "answer"):
        rows.add_column(name, overflow="fold")
    for supply in _unique(supplies):
        style = "yellow" if supply.via == "stand-in" else "" if supply.reachable else "red"
        kind, _, value = supply.source.pin.partition(":")
        pin = f"{kind}:{value[:12]}…" if value else kind
        cells = (supply.source.id, pin, supply.via, supply.address, supply.detail)
        rows.add_row(*(Text(cell, style=style) for cell in cells))
    return rows


def with_stand_in_bases(images: Sequence[Image], facts: Facts, mirrors: Mirrors) -> tuple[Image, ...]:
    """Return each image on its base, or on its stand-in where only that can be had.

    A stand-in may have another Python, for which the wheels are then locked and installed; the image's labels name it.
    Everything else stays as it was planned. Asks the network for the bases alone.
    """
    bases = {image.axes["base"]: source_of_base(image, facts) for image in images if not image.onto}
    supplies = find_supplies(bases.values(), mirrors, rehearse=True)
    stand_ins = {base: s.address for base, s in zip(bases, supplies, strict=True) if s.via == "stand-in"}
    return tuple(
        image if image.onto or image.axes["base"] not in stand_ins else _on_stand_in(image, stand_ins, facts)
        for image in images
    )


def _on_stand_in(image: Image, stand_ins: Mapping[str, str], facts: Facts) -> Image:
    """Return the image on the stand-in of its base, or on another for whose Python its packages have wheels."""
    own, bases = stand_ins[image.axes["base"]], facts.bases.bases
    parts = [name for name in package.component_names() if name in image.components]
    needs = [package.package_facts(n, facts).releases[image.version(n)].needs.get("python", ">=3") for n in parts]
    names = (own, *(name for name, base in bases.items() if base.kind == "bootstrap"))
    stand_in = next((name for name in names if all(satisfies(bases[name].python, need) for need in needs)), own)
    python = Component("python", bases[stand_in].python, f"{stand_in}, which stands in for the base")
    details = dataclasses.replace(image.details(BaseDetails), stand_in=stand_in)
    base = dataclasses.replace(image.components["base"], details=details)
    return dataclasses.replace(image, components={**image.components, "base": base, "python": python})


def _route(source: Source, mirrors: Mirrors) -> Route:
    """Return the route of a source as configured, before any request."""
    mirror = mirrors.address(source)
    if source.kind == "base":
        return _base_route(source, mirror)
    if file := download_store.cached_file(source):
        return "cache", str(file)
    return ("mirror", mirror) if mirror else ("upstream", source.upstream)


def _base_route(source: Source, mirror: str | None) -> Route:
    """Return the route of a base: its mirror, bootstrapping, or its own registry."""
    if source.local_name:
        return "cache", IMAGE_SCHEME + source.local_name
    if source.bootstrap and source.bootstrap == source.stand_in:
        return "stand-in", source.bootstrap
    if source.bootstrap and not mirror and bootstrap.is_possible(source.bootstrap, source.platform):
        return "bootstrap", source.bootstrap
    address = IMAGE_SCHEME + with_registry(mirror or source.upstream)
    address = address if "@" in address or source.digest == UNPINNED else f"{address}@{source.digest}"
    return ("mirror" if mirror else "upstream"), address


def _has_pin(route: Route, source: Source) -> bool:
    """Return whether the bytes that come this way can be compared with something.

    A bootstrapped base has apt's signatures.
    """
    via, address = route
    if source.kind == "base":
        return via in ("bootstrap", "stand-in", "cache") or "@" in address
    return via == "cache" or source.pin != UNPINNED


QueryKey = tuple[Via, str, tuple[str, ...]]  # and the address, the suites


def _query_key(route: Route, source: Source) -> QueryKey:
    return (*route, source.suites)


def _query_all(routes: Sequence[tuple[Route, Source]], mirrors: Mirrors) -> "dict[QueryKey, Reachability]":
    """Ask for every different source once, all at the same time, and return the answers."""
    distinct = {_query_key(route, source): (route, source) for route, source in routes}
    with ThreadPoolExecutor(len(distinct) or 1) as pool:
        answers = pool.map(lambda pair: _query(pair[0], pair[1], mirrors), distinct.values())
        return dict(zip(distinct, answers, strict=True))


def _query(route: Route, source: Source, mirrors: Mirrors) -> "Reachability":
    """Return whether a source is reachable by its route, and the reason or its size in words."""
    via, address = route
    if via == "cache" and source.kind == "base":
        return True, "in the engine, which was measured there"
    if via == "cache":
        return True, f"verified before, {format_bytes(Path(address).stat().st_size)}"
    if not _has_pin(route, source):
        return False, UNPINNED
    if source.kind == "base" and via in ("bootstrap", "stand-in"):
        made = bootstrap.last_bootstrapped(address, source.platform)
        return True, f"made before, {made.tar}" if made else "made from Debian's archive on this host"
    # Here, because its imports take as long as having nothing to do.
    from rdma_images.inputs import reachable

    if source.kind == "base":
        return reachable.ask_registry(address.removeprefix(IMAGE_SCHEME), mirrors)
    if source.kind == "apt":
        if not address:
            return True, "not asked: the base names its own archive"
        return reachable.ask_apt(address, source.suites[0], mirrors)
    if source.kind == "index":
        return reachable.ask_index(address, PROBE_PROJECT, mirrors)
    return reachable.ask_download(address, mirrors)


def _explain_pull(supply: Supply) -> Supply:
    """Return a base's supply, with the reason if it cannot be bootstrapped here."""
    name = supply.source.bootstrap if supply.via == "upstream" else ""
    reason = bootstrap.obstacle(name, supply.source.platform) if name else None
    return dataclasses.replace(supply, detail=f"{supply.detail}; not bootstrapped: {reason}") if reason else supply


def _replacement_group(source: Source) -> str:
    """Return the id that a key and the repository it signs share."""
    return source.pair or source.id


def _stand_in(supply: Supply) -> Supply:
    folder = paths.find_data(f"dockerfiles/stand-ins/{supply.source.component}")
    address = supply.source.stand_in or paths.display_path(folder)
    detail = f"in place of {supply.address}: {supply.detail}"
    return dataclasses.replace(supply, via="stand-in", address=address, reachable=True, detail=detail)


def _unique(supplies: Sequence[Supply]) -> list[Supply]:
    """Return the supplies without repetitions, which several images and stages have."""
    return list({(supply.source.id, supply.via, supply.address): supply for supply in supplies}.values())
