"""Render a result as a page: one HTML file that fetches nothing.

Its chart is an SVG of bus bandwidth by size: both axes logarithmic, lines of runs, and the line rate.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from rdma_images.core import templates
from rdma_images.core.sizes import format_size
from rdma_images.jobs.results import tables
from rdma_images.jobs.results.result import Result

Point = tuple[int, float]  # bytes, GB/s
Tick = tuple[float, str]  # where it is in the picture, and its label

WIDTH, HEIGHT = 900, 440
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 16, 44
MIN_BANDWIDTH = 0.01  # GB/s, as little as nccl-tests print; what is less is drawn there
MAX_LABELS = 10

TEMPLATE = Path(__file__).with_name("page.html.j2")
STATES = {0: "good", 1: "bad", 3: "open"}


@dataclass(frozen=True)
class DrawnLine:
    """The line of a run in the picture: its points in SVG's form, and each with a text."""

    name: str
    path: str
    dots: tuple[tuple[float, float, str], ...]  # x, y, what it is


@dataclass(frozen=True)
class Chart:
    """Everything that the template draws."""

    lines: tuple[DrawnLine, ...]
    rate: float | None  # y of the line rate
    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def chart(
    lines: Sequence[tuple[str, Sequence[Point]]],
    rate: float | None = None,
) -> Chart | None:
    """Return the chart of runs, each with its name; None where none has a point."""
    points = [point for _, line in lines for point in line]
    if not points:
        return None
    smallest = min(size for size, _ in points)
    largest = max(2 * smallest, *(size for size, _ in points))
    highest = max(MIN_BANDWIDTH * 10, *(value for _, value in points), rate or 0)
    axes = _Axes(smallest, largest, 10 ** math.ceil(math.log10(highest) - 1e-9))
    return Chart(
        lines=tuple(axes.draw(name, line) for name, line in lines),
        rate=axes.y(rate) if rate else None,
        x=tuple(axes.x_ticks()),
        y=tuple(axes.y_ticks()),
    )


class _Axes:
    """Map sizes and bandwidths to positions in the picture."""

    def __init__(self, smallest: int, largest: int, highest: float) -> None:
        self.smallest, self.largest, self.highest = smallest, largest, highest

    def x(self, size: int) -> float:
        share = math.log(size / self.smallest) / math.log(self.largest / self.smallest)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        share = math.log(max(value, MIN_BANDWIDTH) / MIN_BANDWIDTH) / math.log(self.highest / MIN_BANDWIDTH)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    def path(self, points: Sequence[Point]) -> str:
        return " ".join(f"{self.x(size):g},{self.y(value):g}" for size, value in points)

    def draw(self, name: str, line: Sequence[Point]) -> DrawnLine:
        dots = ((size, value, f"{name}: {format_size(size)}, {value:.4g} GB/s") for size, value in line)
        return DrawnLine(
            name, self.path(line), tuple((self.x(size), self.y(value), text) for size, value, text in dots)
        )

    def x_ticks(self) -> list[Tick]:
        first_exponent, last_exponent = math.ceil(math.log2(self.smallest)), math.floor(math.log2(self.largest))
        step = max(1, math.ceil((last_exponent - first_exponent + 1) / MAX_LABELS))
        exponents = range(last_exponent, first_exponent - 1, -step)
        return [(self.x(1 << exponent), format_size(1 << exponent)) for exponent in exponents]

    def y_ticks(self) -> list[Tick]:
        exponents = range(round(math.log10(MIN_BANDWIDTH)), round(math.log10(self.highest)) + 1)
        return [(self.y(10.0**exponent), f"{10.0**exponent:g}") for exponent in exponents]


def result_html(result: Result) -> str:
    """Return the page of a result."""
    row = result.runs[0].largest
    collective = row.collective if row else ""
    lines = []
    for run in result.runs:
        rows = [line for line in tables.compare_sizes(run) if line.row.collective == collective and line.row.size]
        lines.append((tables.run_title(run), [(line.row.size, line.busbw) for line in rows]))
    where = f"{result.nodes} x {result.instance}" if result.instance and result.nodes else result.instance
    return _template().render(
        result=result,
        state=STATES[result.exit_code],
        about=[part for part in (where, result.digest, f"logs read {result.time}") if part],
        heading=f"Bus bandwidth of {collective or 'the collective'}",
        chart=chart(lines, result.line_rate),
        tables=(tables.node_table(result.runs[0].nodes), tables.size_table(result)),
        note=tables.bandwidth_note(result),
    )


@functools.cache
def _template() -> jinja2.Template:
    return templates.environment([TEMPLATE.parent], escape=True).get_template(TEMPLATE.name)
