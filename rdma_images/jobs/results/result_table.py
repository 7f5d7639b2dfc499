"""A result for a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.jobs.results import compare, speed, tables
from rdma_images.jobs.results.result import Leg, Node, Problem, Result

STYLES = {0: "bold green", 1: "bold red", 3: "bold yellow"}
MOST = 40  # nodes that are shown, those with fewer adapters first
BAR = 24  # characters of the longest bar


def table(result: Result) -> RenderableType:
    """The sentence, then what is wrong, the nodes, the rows, and what they are compared with."""
    headline = Text(result.sentence, STYLES[result.exit_code])
    parts: list[RenderableType] = [headline]
    first = result.legs[0]
    for leg in result.legs:
        for one in leg.problems:
            if len(parts) == 1 and result.sentence.startswith(one.sentence):  # the headline says it
                headline.append(_about(leg, one))
            else:
                parts.append(_problem(leg, one))
    parts += [Text(), *_nodes(first.nodes)] if first.nodes else []
    parts += [Text(), _rows(result)] if first.measurements else []
    return Group(*parts, *_expected(result))


def shown(what: tables.Table, bars: Sequence[str] = ()) -> RenderableType:
    """A table, with a bar at the end of each row where there are any."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for n, head in enumerate(what.heads):
        made.add_column(head, justify="right" if n in what.numbers else "left")
    for row, bar in zip(what.rows, bars or [""] * len(what.rows), strict=True):
        made.add_row(*row, bar)
    return made


def _problem(leg: Leg, one: Problem) -> Text:
    """A problem with its causes, what to do, and where it is to be seen."""
    name = "tcp leg: " if leg.name == "tcp" else ""
    text = Text(f"{name}{one.sentence}", "red" if one.severity == "error" else "yellow")
    return text.append(_about(leg, one))


def _about(leg: Leg, one: Problem) -> Text:
    """What comes after the sentence of a problem."""
    text = Text(_places(one.where), "not bold dim")
    if one is leg.problems[0]:
        for cause, places in leg.evidence.items():
            text.append(f"\n  {cause}", "not bold not dim default").append(_places(places), "not bold dim default")
    if one.fix:
        text.append("\n  fix  ", "not bold dim default").append(one.fix, "not bold not dim default")
    return text


def _places(places: Sequence[str]) -> str:
    return f"  [{', '.join(places[:3])}{', …' if len(places) > 3 else ''}]" if places else ""


def _nodes(nodes: Sequence[Node]) -> Iterable[RenderableType]:
    """A line for each node; of many, those with the fewest adapters."""
    worst = sorted(nodes, key=lambda node: int(node.adapters.value) if node.adapters else 0)[:MOST]
    yield shown(tables.nodes(nodes if len(nodes) <= MOST else worst))
    if len(nodes) > MOST:
        yield Text(f"and {len(nodes) - MOST} nodes more, see --json", "dim")


def _rows(result: Result) -> RenderableType:
    """Size, bus bandwidth of the legs, speed-up, and a bar of the logarithm."""
    lines = speed.lines(result)
    top = max((line.busbw for line in lines), default=0.0)
    rows = tables.rows(result)
    return shown(replace(rows, heads=(*rows.heads, "")), ["█" * speed.bar(line.busbw, top, BAR) for line in lines])


def _expected(result: Result) -> Iterable[RenderableType]:
    """What the row of the largest size is compared with, and why it may be below that."""
    for note in tables.notes(result):
        yield Text(f"\n{note}")
    if causes := result.expected.causes:
        yield Text("\nlikely causes of less, in this order", "bold")
        for n, (cause, places) in enumerate(causes.items(), 1):
            yield Text(f"  {n}. {cause}").append(_places(places), "dim")


def comparison(found: compare.Comparison) -> RenderableType:
    """Two results side by side: the sentence, the sizes with a bar of the ratio, and what else differs."""
    sizes, differences = compare.tables(found)
    top = max((line.ratio or 0 for line in found.lines), default=1.0)
    bars = ["█" * round(BAR * (line.ratio or 0) / max(top, 1)) for line in found.lines]
    parts = [Text(found.sentence, "bold"), Text(), shown(replace(sizes, heads=(*sizes.heads, "")), bars)]
    return Group(*parts, *((Text(), shown(differences)) if differences.rows else ()))
