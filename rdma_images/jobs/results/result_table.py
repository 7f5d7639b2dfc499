"""Show a result on a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.jobs.results import compare, tables
from rdma_images.jobs.results.result import NodeResult, Problem, Result, RunResult

STYLES = {0: "bold green", 1: "bold red", 3: "bold yellow"}
MAX_NODES = 40  # nodes that are shown, those with fewer adapters first


def result_table(result: Result) -> RenderableType:
    """Return the result for people: sentence, problems, nodes, rows and references."""
    headline = Text(result.sentence, STYLES[result.exit_code])
    parts: list[RenderableType] = [headline]
    first_run = result.runs[0]
    for run in result.runs:
        for problem in run.problems:
            if len(parts) == 1 and result.sentence.startswith(problem.sentence):  # the headline says it
                headline.append(_problem_text(run, problem))
            else:
                parts.append(_problem(run, problem))
    parts += [Text(), *_nodes(first_run.nodes)] if first_run.nodes else []
    parts += [Text(), render_table(tables.size_table(result))] if first_run.measurements else []
    return Group(*parts, *(Text(f"\n{note}") for note in tables.comparison_notes(result)))


def render_table(table: tables.ResultTable) -> RenderableType:
    """Return a table for a terminal."""
    rendered = Table(box=None, pad_edge=False, header_style="bold")
    for n, head in enumerate(table.heads):
        rendered.add_column(head, justify="right" if n in table.numbers else "left")
    for row in table.rows:
        rendered.add_row(*row)
    return rendered


def _problem(run: RunResult, problem: Problem) -> Text:
    """Return a problem with its causes, what to do, and the lines that show it."""
    name = "tcp leg: " if run.name == "tcp" else ""
    text = Text(f"{name}{problem.sentence}", "red" if problem.severity == "error" else "yellow")
    return text.append(_problem_text(run, problem))


def _problem_text(run: RunResult, problem: Problem) -> Text:
    """Return what follows the sentence of a problem."""
    text = Text(_source_list(problem.where), "not bold dim")
    if problem is run.problems[0]:
        for cause, lines in run.evidence.items():
            text.append(f"\n  {cause}", "not bold not dim default").append(_source_list(lines), "not bold dim default")
    if problem.fix:
        text.append("\n  fix  ", "not bold dim default").append(problem.fix, "not bold not dim default")
    return text


def _source_list(lines: Sequence[str]) -> str:
    return f"  [{', '.join(lines[:3])}{', …' if len(lines) > 3 else ''}]" if lines else ""


def _nodes(nodes: Sequence[NodeResult]) -> Iterable[RenderableType]:
    """Yield a line for each node; of many, those with the fewest adapters."""
    worst = sorted(nodes, key=lambda node: int(node.adapters.value) if node.adapters else 0)[:MAX_NODES]
    yield render_table(tables.node_table(nodes if len(nodes) <= MAX_NODES else worst))
    if len(nodes) > MAX_NODES:
        yield Text(f"and {len(nodes) - MAX_NODES} nodes more, see --json", "dim")


def comparison_table(compared: compare.Comparison) -> RenderableType:
    """Return two results side by side: sentence, sizes and differences."""
    sizes, differences = compare.tables(compared)
    parts = [Text(compared.sentence, "bold"), Text(), render_table(sizes)]
    return Group(*parts, *((Text(), render_table(differences)) if differences.rows else ()))
