"""The results in docs/explanation/performance.json, of several runs.

Every figure names the run that it is of, and a ratio of figures of two runs is refused: they may be of two machines, or
of two hours of a shared one.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

from rdma_images.core import atomic, paths

FILE = paths.PROJECT / "docs" / "explanation" / "performance.json"
Way = Literal["baseline", "ours"]
WAYS: tuple[Way, Way] = ("baseline", "ours")


class MixedRunsError(ValueError):
    """Two figures are of two runs, and their ratio says nothing."""

    def __init__(self, *runs: "BenchmarkRun") -> None:
        """Take the runs of the figures."""
        self.runs = runs
        super().__init__(f"of two runs, not compared: {' and '.join(map(str, runs))}")


@dataclass(frozen=True)
class BenchmarkRun:
    """One start of benchmarks/build.py."""

    began: str  # in UTC, "2026-11-23 14:05"; the day alone of older runs
    commit: str
    machine: str  # "2 cores, 25 GB of memory, Linux 6.18.44"
    wheels: str = ""  # the large wheels, where not all

    def __str__(self) -> str:
        """Return the run as the page names it."""
        only = f"; of the large wheels only {self.wheels}" if self.wheels else ""
        return f"{self.began}, {self.commit}, {self.machine}{only}"


@dataclass(frozen=True)
class Figure:
    """A value, and the run that it is of."""

    value: float
    run: BenchmarkRun


def ratio(above: Figure | None, below: Figure | None) -> float | None:
    """Return `above` over `below`; None without both. Raises MixedRunsError for two runs."""
    if not above or not below or not below.value:
        return None
    if above.run != below.run:
        raise MixedRunsError(above.run, below.run)
    return above.value / below.value


@dataclass
class ResultRow:
    """One quantity, measured both ways; values in `unit`."""

    values: dict[str, list[float]] = field(default_factory=dict)  # by way, a value a repetition
    unit: str = "s"
    loads: dict[str, list[float]] = field(default_factory=dict)  # the machine's load average at the end of each
    runs: dict[str, BenchmarkRun] = field(default_factory=dict)  # by way

    def add(self, way: Way, value: float, machine_load: float) -> None:
        """Add one more value of the run that began the row."""
        self.values.setdefault(way, []).append(value)
        self.loads.setdefault(way, []).append(machine_load)

    def figure(self, way: Way) -> Figure | None:
        """Return the median of a way's values; None where it was not measured."""
        return Figure(median(self.values[way]), self.runs[way]) if self.values.get(way) else None

    @property
    def ratio(self) -> float | None:
        """Return baseline over ours; None for a missing one. Raises MixedRunsError."""
        return ratio(self.figure("baseline"), self.figure("ours"))


@dataclass
class Results:
    """All rows by name."""

    rows: dict[str, ResultRow] = field(default_factory=dict)

    def start(self, name: str, unit: str, ways: Iterable[Way], run: BenchmarkRun) -> ResultRow:
        """Return a row to fill; what it had of these ways is removed."""
        row = self.rows.setdefault(name, ResultRow(unit=unit))
        for way in ways:
            row.values[way], row.loads[way], row.runs[way] = [], [], run
        return row

    def figure(self, name: str, way: Way = "ours") -> Figure | None:
        """Return the median of a row's way; None where it was not measured."""
        return self.rows[name].figure(way) if name in self.rows else None

    def save(self, file: Path = FILE) -> None:
        """Write the file whole."""
        plain: dict[str, Any] = {"rows": {name: asdict(row) for name, row in sorted(self.rows.items())}}
        atomic.write(file, json.dumps(plain, indent=1) + "\n")


def load(file: Path = FILE) -> Results:
    """Return what was measured so far."""
    if not file.exists():
        return Results()
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    for row in rows.values():
        row["runs"] = {way: BenchmarkRun(**run) for way, run in row["runs"].items()}
    return Results({name: ResultRow(**row) for name, row in rows.items()})
