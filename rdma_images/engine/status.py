"""What the engine is, uses and may use: for people as a table, for programs as a dict."""

import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from rdma_images.engine import ask, daemons, disk, found, private, turn
from rdma_images.engine.layout import layout
from rdma_images.engine.model import Engine
from rdma_images.errors import RdmaImagesError


@dataclass(frozen=True)
class Status:
    """One look at the engine. Sizes are in bytes; None is what this kind of engine does not tell."""

    engine: Engine | None  # None where none runs
    trouble: str = ""  # why there is none
    versions: Mapping[str, str] = field(default_factory=dict)  # by program
    pids: Mapping[str, int] = field(default_factory=dict)  # of the private engine's daemons
    folder: str = ""  # of the private engine
    folder_used: int | None = None
    disk_free: int | None = None
    cache_used: int | None = None
    cache_limit: int | None = None  # above it the least used cache goes
    turns: Mapping[str, turn.Holder] = field(default_factory=dict)  # who holds what

    def json(self) -> dict[str, Any]:
        """For `--json`: without the environment, which is the asker's own."""
        answer = asdict(self)
        if self.engine:
            del answer["engine"]["env"]
        return answer


def status() -> Status:
    """The engine that `ensure` would answer with, as it is now: nothing is started."""
    try:
        engine, trouble = found.find()
    except RdmaImagesError as error:
        return Status(None, str(error), turns=turn.holders())
    if engine:
        return Status(engine, versions={"docker": engine.version, "buildx": engine.buildx}, turns=turn.holders())
    place = layout()
    private_one = private.running()
    common: dict[str, Any] = {
        "folder": str(place.root),
        "folder_used": disk.used(place.root),
        "disk_free": disk.free(place.root),
        "turns": turn.holders(),
    }
    if private_one is None:
        return Status(None, f"{trouble}, and no private engine runs: `invoke engine.up` starts one", **common)
    df = ask.get(place.socket, "/system/df?type=build-cache", 60.0)
    return Status(
        private_one,
        versions={"docker": private_one.version, "buildx": private_one.buildx, **_components(private_one)},
        pids={name: one.pid for name, one in daemons.running(place).items()},
        cache_used=sum(record["Size"] for record in df["BuildCache"] or ()),
        cache_limit=disk.cache_limit(place.root),
        **common,
    )


def table(seen: Status) -> Table:
    """The status as two columns."""
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column()
    engine = seen.engine
    rows.add_row("engine", f"{engine.name} ({engine.kind})" if engine else f"none: {seen.trouble}")
    if engine:
        rows.add_row("answers at", engine.host)
        rows.add_row("image store", engine.store)
        rows.add_row("network of builds", engine.build_network)
    if seen.versions:
        rows.add_row("versions", ", ".join(f"{name} {version}" for name, version in seen.versions.items()))
    if seen.pids:
        rows.add_row("processes", ", ".join(f"{name} {pid}" for name, pid in seen.pids.items()))
    if seen.folder_used is not None:
        free = f", {_gb(seen.disk_free)} free there" if seen.disk_free is not None else ""
        rows.add_row("disk", f"{_gb(seen.folder_used)} in {seen.folder}{free}")
    if seen.cache_limit is not None:
        limit = f"{_gb(seen.cache_used)}; above {_gb(seen.cache_limit)} the least used is removed"
        rows.add_row("build cache", limit)
    for name, who in seen.turns.items():
        rows.add_row(f"turn: {name}", str(who))
    return rows


def _components(engine: Engine) -> dict[str, str]:
    """The versions of containerd and runc."""
    versions = {}
    for name in ("containerd", "runc"):
        said = subprocess.run([name, "--version"], env=engine.environ(), capture_output=True, text=True).stdout
        words = said.partition("\n")[0].split()
        versions[name] = next((word for word in words if word[:1].isdigit()), "unknown")
    return versions


def _gb(size: int | None) -> str:
    return "unknown" if size is None else f"{size / disk.GB:.1f} GB"
