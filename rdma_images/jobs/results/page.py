"""A result, or two side by side, as a page: one HTML file that fetches nothing."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from rdma_images.core import templates
from rdma_images.jobs.results import expected, speed, tables
from rdma_images.jobs.results.chart import Chart, Line, chart
from rdma_images.jobs.results.result import Leg, Problem, Result
from rdma_images.jobs.results.tables import Table

TEMPLATE = Path(__file__).with_name("page.html.j2")
STATES = {0: "good", 1: "bad", 3: "open"}


@dataclass(frozen=True)
class Page:
    """What the template shows."""

    title: str
    sentence: str
    state: str
    about: Sequence[str]
    heading: str
    chart: Chart | None
    tables: Sequence[Table]
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def of_result(result: Result) -> str:
    """The page of a result."""
    known, row = result.expected, result.legs[0].largest
    collective = row.collective if row else ""
    lines = [line(speed.title(leg), leg, collective) for leg in result.legs]
    published = [(one.size, one.low, one.high) for one in known.published if one.size]
    return render(
        Page(
            title=result.job or "A job's result",
            sentence=result.sentence,
            state=STATES[result.exit_code],
            about=_about(result),
            heading=f"Bus bandwidth of {collective or 'the collective'}",
            chart=chart(lines, published, known.line_rate.low if known.line_rate else None),
            tables=(tables.nodes(result.legs[0].nodes), tables.rows(result)),
            problems=[problem for leg in result.legs for problem in leg.problems],
            notes=tables.notes(result),
            causes=known.causes,
        )
    )


def render(page: Page) -> str:
    """The HTML of a page."""
    return _template().render(page=page)


@functools.cache
def _template() -> jinja2.Template:
    return templates.environment([TEMPLATE.parent], escape=True).get_template(TEMPLATE.name)


def line(name: str, leg: Leg, collective: str) -> Line:
    """The rows of one collective of a leg."""
    rows = (row for row in speed.rows(leg).values() if row.collective == collective)
    return Line(name, tuple((row.size, busbw) for row in rows if (busbw := expected.best(row)) is not None))


def _about(result: Result) -> list[str]:
    """What ran where and when, as far as it is known."""
    where = f"{result.nodes} x {result.instance}" if result.instance and result.nodes else result.instance
    return [one for one in (where, result.digest, f"logs read {result.time}") if one]
