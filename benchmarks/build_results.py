"""What was measured, kept in docs/performance.json: a run of some measurements leaves the others as they are."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

from rdma_images.core import atomic, paths

FILE = paths.PROJECT / "docs" / "performance.json"
Way = Literal["baseline", "ours"]
WAYS: tuple[Way, Way] = ("baseline", "ours")


@dataclass
class Row:
    """One quantity, measured both ways; values in `unit`."""

    values: dict[str, list[float]] = field(default_factory=dict)  # by way, a value a run
    unit: str = "s"
    loads: dict[str, list[float]] = field(default_factory=dict)  # the machine's load average at the end of each run
    measured: dict[str, str] = field(default_factory=dict)  # by way: date, commit, and which wheels where not all

    def add(self, way: Way, value: float, load: float) -> None:
        """One more run."""
        self.values.setdefault(way, []).append(value)
        self.loads.setdefault(way, []).append(load)

    def median(self, way: Way) -> float | None:
        """The median of a way's runs; None where it was not measured."""
        return median(self.values[way]) if self.values.get(way) else None

    @property
    def ratio(self) -> float | None:
        """How many times less ours is; None where one way was not measured."""
        baseline, ours = (self.median(way) for way in WAYS)
        return baseline / ours if baseline and ours else None


@dataclass
class Results:
    """All rows by name, and what they were measured on."""

    machine: dict[str, str] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)

    def start(self, name: str, unit: str, ways: Iterable[Way], measured: str) -> Row:
        """A row to fill; what it had of these ways goes, for it may be of another machine or commit."""
        row = self.rows.setdefault(name, Row(unit=unit))
        for way in ways:
            row.values[way], row.loads[way], row.measured[way] = [], [], measured
        return row

    def save(self, file: Path = FILE) -> None:
        """Write the file whole."""
        told: dict[str, Any] = {"machine": self.machine, "rows": {n: asdict(r) for n, r in sorted(self.rows.items())}}
        atomic.write(file, json.dumps(told, indent=1) + "\n")


def load(file: Path = FILE) -> Results:
    """What was measured so far."""
    if not file.exists():
        return Results()
    told = json.loads(file.read_text(encoding="utf-8"))
    return Results(told["machine"], {name: Row(**row) for name, row in told["rows"].items()})
