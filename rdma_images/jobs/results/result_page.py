"""Render a result, or two side by side, as a page: one HTML file that fetches nothing.

Its chart is an SVG of bus bandwidth by size: both axes logarithmic, lines of runs, the published band, the line rate.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from rdma_images.core import templates
from rdma_images.core.sizes import format_size
from rdma_images.jobs.results import expected_bandwidth, tables
from rdma_images.jobs.results.result import Result, RunResult

Point = tuple[int, float]  # bytes, GB/s

WIDTH, HEIGHT = 900, 440
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 16, 44
MIN_BANDWIDTH = 0.01  # GB/s, as little as nccl-tests print; what is less is drawn there
MAX_LABELS = 10

TEMPLATE = Path(__file__).with_name("page.html.j2")
STATES = {0: "good", 1: "bad", 3: "open"}


@dataclass(frozen=True)
class ChartLine:
    """The points of one run."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Tick:
    """A label of an axis, and where it is in the picture."""

    position: float
    label: str


@dataclass(frozen=True)
class DrawnLine:
    """A line in the picture: its points in SVG's form, and the text of each."""

    name: str
    path: str
    dots: tuple[tuple[float, float, str], ...]  # x, y, what it is


@dataclass(frozen=True)
class Chart:
    """Everything that the template draws."""

    lines: tuple[DrawnLine, ...]
    band: str  # the points of a polygon; empty where nothing is published
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
    lines: Sequence[ChartLine], band: Sequence[tuple[int, float, float]] = (), rate: float | None = None
) -> Chart | None:
    """Return the chart of lines, with the lowest and highest published by size.

    Returns:
        None where no line has a point.
    """
    points = [point for line in lines for point in line.points if point[0] > 0]
    if not points:
        return None
    sizes = [size for size, _ in points] + [size for size, _, _ in band]
    highest = max(MIN_BANDWIDTH * 10, *(value for _, value in points), *(high for _, _, high in band), rate or 0)
    axes = _Axes(min(sizes), max(max(sizes), 2 * min(sizes)), 10 ** math.ceil(math.log10(highest) - 1e-9))
    low = [axes.point(size, value) for size, value, _ in band]
    high = [axes.point(size, value) for size, _, value in reversed(band)]
    return Chart(
        lines=tuple(_draw(line, axes) for line in lines),
        band=_path([*low, *high]) if len(band) > 1 else "",
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

    def point(self, size: int, value: float) -> tuple[float, float]:
        return self.x(size), self.y(value)

    def x_ticks(self) -> list[Tick]:
        first_exponent, last_exponent = math.ceil(math.log2(self.smallest)), math.floor(math.log2(self.largest))
        step = max(1, math.ceil((last_exponent - first_exponent + 1) / MAX_LABELS))
        return [
            Tick(self.x(1 << power), format_size(1 << power))
            for power in range(last_exponent, first_exponent - 1, -step)
        ]

    def y_ticks(self) -> list[Tick]:
        first_exponent, last_exponent = round(math.log10(MIN_BANDWIDTH)), round(math.log10(self.highest))
        return [Tick(self.y(10.0**power), f"{10.0**power:g}") for power in range(first_exponent, last_exponent + 1)]


def _draw(line: ChartLine, axes: _Axes) -> DrawnLine:
    dots = [
        (*axes.point(size, value), f"{line.name}: {format_size(size)}, {value:.4g} GB/s")
        for size, value in line.points
        if size > 0
    ]
    return DrawnLine(line.name, _path([(x, y) for x, y, _ in dots]), tuple(dots))


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def result_html(result: Result) -> str:
    """Return the page of a result."""
    bandwidth, row = result.expected, result.runs[0].largest
    collective = row.collective if row else ""
    lines = [_chart_line(run, collective) for run in result.runs]
    published = [(reference.size, reference.low, reference.high) for reference in bandwidth.published if reference.size]
    return _template().render(
        result=result,
        state=STATES[result.exit_code],
        about=_description(result),
        heading=f"Bus bandwidth of {collective or 'the collective'}",
        chart=chart(lines, published, bandwidth.line_rate.low if bandwidth.line_rate else None),
        tables=(tables.node_table(result.runs[0].nodes), tables.size_table(result)),
        notes=tables.comparison_notes(result),
    )


@functools.cache
def _template() -> jinja2.Template:
    return templates.environment([TEMPLATE.parent], escape=True).get_template(TEMPLATE.name)


def _chart_line(run: RunResult, collective: str) -> ChartLine:
    """Return the rows of one collective of a run as a line."""
    rows = (row for row in tables.rows_by_key(run).values() if row.collective == collective)
    points = ((row.size, expected_bandwidth.best_busbw(row)) for row in rows)
    return ChartLine(tables.run_title(run), tuple((size, busbw) for size, busbw in points if busbw is not None))


def _description(result: Result) -> list[str]:
    """Return what ran where and when, as far as it is known."""
    where = f"{result.nodes} x {result.instance}" if result.instance and result.nodes else result.instance
    return [part for part in (where, result.digest, f"logs read {result.time}") if part]
