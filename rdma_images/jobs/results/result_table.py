"""Show a result on a terminal, or as a page."""

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.core import exit_codes
from rdma_images.jobs.results import compare, tables
from rdma_images.jobs.results.result import Result, ResultProblem, RunResult

STYLES = {exit_codes.OK: "bold green", exit_codes.FAILED: "bold red", exit_codes.UNKNOWN: "bold yellow"}
MAX_NODES = 40  # nodes that are shown, those with fewer adapters first
PAGE_WIDTH = 240  # characters


def result_html(result: Result) -> str:
    """Return the result table as a page of HTML that loads nothing from elsewhere."""
    console = Console(record=True, file=StringIO(), width=PAGE_WIDTH)
    console.print(result_table(result))
    return console.export_html(inline_styles=True)


def result_table(result: Result) -> RenderableType:
    """Return the result for people: sentence, problems, nodes, rows and references."""
    note = tables.bandwidth_note(result)
    return Group(*_result_parts(result), *([Text(f"\n{note}")] if note else []))


def _result_parts(result: Result) -> Iterator[RenderableType]:
    headline = Text(result.sentence, STYLES[result.exit_code])
    problems = [(run, problem) for run in result.runs for problem in run.problems]
    if problems and result.sentence.startswith(problems[0][1].sentence):  # the headline says it
        headline.append(_explanation(*problems.pop(0)))
    yield headline
    for run, problem in problems:
        name = "over TCP: " if run.name == "tcp" else ""
        text = Text(f"{name}{problem.sentence}", "red" if problem.severity == "error" else "yellow")
        yield text.append(_explanation(run, problem))
    nodes = sorted(result.runs[0].nodes, key=lambda node: int(node.adapters.value) if node.adapters else 0)
    if nodes:
        yield Text()
        yield render_table(tables.node_table(nodes[:MAX_NODES] if len(nodes) > MAX_NODES else result.runs[0].nodes))
    if len(nodes) > MAX_NODES:
        yield Text(f"and {len(nodes) - MAX_NODES} nodes more, see --json", "dim")
    if result.runs[0].measurements:
        yield Text()
        yield render_table(tables.size_table(result))
    for run in result.runs[1:]:
        yield Text(f"over TCP: {run.sentence}", "dim")


def _explanation(run: RunResult, problem: ResultProblem) -> Text:
    """Return what follows the sentence of a problem: the lines that show it, its causes, and what to do."""
    text = Text(_source_list(problem.where), "not bold dim")
    for cause, lines in run.evidence.items() if problem is run.problems[0] else ():
        text.append(f"\n  {cause}", "not bold not dim default").append(_source_list(lines), "not bold dim default")
    if problem.fix:
        text.append("\n  fix  ", "not bold dim default").append(problem.fix, "not bold not dim default")
    return text


def _source_list(lines: Sequence[str]) -> str:
    return f"  [{', '.join(lines[:3])}{', …' if len(lines) > 3 else ''}]" if lines else ""


def render_table(table: tables.ResultTable) -> RenderableType:
    """Return a table for a terminal."""
    rendered = Table(box=None, pad_edge=False, header_style="bold")
    for number, head in enumerate(table.heads):
        rendered.add_column(head, justify="right" if number in table.numbers else "left")
    for row in table.rows:
        rendered.add_row(*row)
    return rendered


def comparison_table(compared: compare.Comparison) -> RenderableType:
    """Return two results side by side: sentence, sizes and differences."""
    sizes, differences = compare.tables(compared)
    parts = [Text(compared.sentence, "bold"), Text(), render_table(sizes)]
    return Group(*parts, *((Text(), render_table(differences)) if differences.rows else ()))
