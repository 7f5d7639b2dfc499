"""Render a result, or two side by side, as a page: one HTML file that fetches nothing."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from rdma_images.core import templates
from rdma_images.jobs.results import expected_bandwidth, speed, tables
from rdma_images.jobs.results.chart import Chart, ChartLine, chart
from rdma_images.jobs.results.result import Problem, Result, RunResult
from rdma_images.jobs.results.tables import ResultTable

TEMPLATE = Path(__file__).with_name("page.html.j2")
STATES = {0: "good", 1: "bad", 3: "open"}


@dataclass(frozen=True)
class ResultPage:
    """The content of the template."""

    title: str
    sentence: str
    state: str
    about: Sequence[str]
    heading: str
    chart: Chart | None
    tables: Sequence[ResultTable]
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def result_html(result: Result) -> str:
    """Return the page of a result."""
    bandwidth, row = result.expected, result.runs[0].largest
    collective = row.collective if row else ""
    lines = [chart_line(speed.run_title(run), run, collective) for run in result.runs]
    published = [(reference.size, reference.low, reference.high) for reference in bandwidth.published if reference.size]
    return render(
        ResultPage(
            title=result.job or "A job's result",
            sentence=result.sentence,
            state=STATES[result.exit_code],
            about=_about(result),
            heading=f"Bus bandwidth of {collective or 'the collective'}",
            chart=chart(lines, published, bandwidth.line_rate.low if bandwidth.line_rate else None),
            tables=(tables.node_table(result.runs[0].nodes), tables.size_table(result)),
            problems=[problem for run in result.runs for problem in run.problems],
            notes=tables.comparison_notes(result),
            causes=bandwidth.causes,
        )
    )


def render(page: ResultPage) -> str:
    """Return the HTML of a page."""
    return _template().render(page=page)


@functools.cache
def _template() -> jinja2.Template:
    return templates.environment([TEMPLATE.parent], escape=True).get_template(TEMPLATE.name)


def chart_line(name: str, run: RunResult, collective: str) -> ChartLine:
    """Return the rows of one collective of a run as a line."""
    rows = (row for row in speed.rows_by_key(run).values() if row.collective == collective)
    return ChartLine(
        name, tuple((row.size, busbw) for row in rows if (busbw := expected_bandwidth.best_busbw(row)) is not None)
    )


def _about(result: Result) -> list[str]:
    """Return what ran where and when, as far as it is known."""
    where = f"{result.nodes} x {result.instance}" if result.instance and result.nodes else result.instance
    return [part for part in (where, result.digest, f"logs read {result.time}") if part]
