"""Status of the engine, its disk space and its limits, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from rdma_images.core import disk_space, locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND, state_folder
from rdma_images.core.sizes import format_bytes
from rdma_images.engine import daemon_api, discovery, private
from rdma_images.engine.docker_command import Engine
from rdma_images.engine.layout import Layout, layout

COUNTING = 60.0  # seconds that the builder may count its cache


@dataclass(frozen=True)
class FreeableSpace:
    """Bytes on the disk that a command frees."""

    title: str
    bytes: int
    command: str
    at_most: bool = False  # other images share its layers


@dataclass(frozen=True)
class Status:
    """The engine's status; sizes in bytes, None where this kind of engine does not tell."""

    engine: Engine | None  # None where none runs
    problem: str = ""  # why there is none
    folder: str = ""  # of the private engine
    folder_used: int | None = None
    disk_free: int | None = None
    space: tuple[FreeableSpace, ...] = ()  # what can be freed, the largest first
    locks: Mapping[str, locking.Holder] = field(default_factory=dict)  # who holds what


def engine_status() -> Status:
    """Return the engine that `ensure` would answer with, as it is now: nothing is started."""
    try:
        engine, problem = discovery.find_engine()
    except RdmaImagesError as error:
        return Status(None, str(error), locks=locking.holders())
    if engine:
        return Status(engine, locks=locking.holders())
    folders = layout()
    private_engine = private.running()
    common: dict[str, Any] = {
        "folder": str(folders.root),
        "folder_used": disk_space.used_bytes(folders.root),
        "disk_free": disk_space.free(folders.root),
        "locks": locking.holders(),
    }
    if private_engine is None:
        why_none = private.obstacle() or f"no private engine runs: `{COMMAND} engine.up` starts one"
        return Status(None, f"{problem}, and {why_none}", **common)
    return Status(private_engine, space=freeable_space(folders), **common)


def table(engine_status: Status) -> Table:
    """Return the status as two columns."""
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column()
    engine = engine_status.engine
    rows.add_row("engine", f"{engine.name} ({engine.kind})" if engine else f"none: {engine_status.problem}")
    if engine:
        rows.add_row("answers at", engine.host)
        rows.add_row("image store", engine.store)
        rows.add_row("network of builds", engine.build_network)
        rows.add_row("versions", f"docker {engine.version}, buildx {engine.buildx}")
    if engine_status.folder_used is not None:
        free = f", {format_bytes(engine_status.disk_free)} free there" if engine_status.disk_free is not None else ""
        rows.add_row("disk", f"{format_bytes(engine_status.folder_used)} in {engine_status.folder}{free}")
    for space in engine_status.space:
        size = f"{'at most ' * space.at_most}{format_bytes(space.bytes)}"
        rows.add_row(f"can be freed: {space.title}", f"{size}: {space.command}")
    for name, holder in engine_status.locks.items():
        rows.add_row(f"lock: {name}", str(holder))
    return rows


def freeable_space(folders: Layout) -> tuple[FreeableSpace, ...]:
    """Return what can be freed, each with the command, the largest first."""
    try:
        images = int(daemon_api.request(folders.socket, "/system/df?type=image", COUNTING)["LayersSize"] or 0)
    except OSError:
        images = 0
    default = "removes those that the default matrix does not have"
    spaces = [
        FreeableSpace("build cache", build_cache_bytes(folders), f"`{COMMAND} engine.prune --cache`", at_most=True),
        FreeableSpace("images", images, f"`{COMMAND} engine.prune` {default}", at_most=True),
    ]
    kinds = {"layers": "layers made of wheels", "downloads": "downloads", "bases": "bootstrapped bases"}
    for name, kind in kinds.items():
        folder = state_folder() / name
        spaces.append(FreeableSpace(kind, disk_space.used_bytes(folder), f"`rm -r {folder}`: made again when needed"))
    return tuple(sorted((space for space in spaces if space.bytes), key=lambda space: -space.bytes))


def build_cache_bytes(folders: Layout) -> int:
    """Return the bytes of the private engine's build cache; 0 without an answer in time."""
    try:
        df = daemon_api.request(folders.socket, "/system/df?type=build-cache", COUNTING)
    except OSError:
        return 0
    return sum(int(record["Size"]) for record in df["BuildCache"] or ())
