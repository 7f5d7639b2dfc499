"""A result as tables and sentences, which the page and the terminal show alike."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rdma_images.core.sizes import message
from rdma_images.jobs.results import expected, speed
from rdma_images.jobs.results.result import Node, Result


@dataclass(frozen=True)
class Table:
    """A table; `numbers` are the columns that have numbers."""

    heading: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()


def notes(result: Result) -> list[str]:
    """What the row of the largest size is compared with."""
    known, row = result.expected, result.legs[0].largest
    near, busbw = expected.band(known, row), expected.best(row)
    if row is None or busbw is None:
        return []
    found, rate = [], known.line_rate
    if rate and known.share is not None:
        above = "; on few nodes a tree moves less over the network than the formula supposes" if known.share > 1 else ""
        found.append(f"{rate.what} = {rate.low:g} GB/s: {message(row.size)} is at {known.share:.0%} of it{above}")
    if near:
        place = "below" if busbw < near.low else "above" if busbw > near.high else "in"
        found.append(f"published: {near.what}; {near.source}")
        found.append(f"{busbw:.4g} GB/s is {place} {near.low:.4g} to {near.high:.4g} GB/s")
    elif result.instance:
        nodes = result.nodes or len(result.legs[0].nodes)
        found.append(
            f"nothing is published for {row.collective or 'this'} of {message(row.size)} on {nodes} x {result.instance}"
        )
    return found


def nodes(found: Sequence[Node]) -> Table:
    """A line for each node, with where the number of its adapters was read."""
    heads = (
        "node",
        "ranks",
        "adapters",
        "devices used",
        "GPUDirect",
        "provider",
        "NCCL",
        "plugin",
        "libfabric",
        "read in",
    )
    lines = [
        (
            node.name,
            ranges(node.ranks),
            f"{node.adapters.value}{f' of {node.expected}' if node.expected else ''}" if node.adapters else "-",
            str(node.used or "-"),
            *(
                read.value if read else "-"
                for read in (node.gpudirect, node.provider, node.nccl, node.plugin, node.libfabric)
            ),
            node.adapters.where if node.adapters else "",
        )
        for node in found
    ]
    return Table("Nodes", heads, lines)


def rows(result: Result) -> Table:
    """Size, bus bandwidth of the legs, speed-up, wrong elements, and where the row was read."""
    over = result.leg("tcp") is not None and len(result.legs) > 1
    heads = (
        "collective",
        "size",
        f"{speed.title(result.legs[0])} GB/s",
        *(("TCP GB/s", "speed-up") if over else ()),
        "wrong",
        "read in",
    )
    lines = [
        (
            one.collective,
            message(one.size),
            f"{one.busbw:.2f}",
            *(
                (f"{one.other:.2f}" if one.other is not None else "-", f"{one.ratio:.1f}x" if one.ratio else "-")
                if over
                else ()
            ),
            "-" if one.wrong is None else str(one.wrong),
            one.where,
        )
        for one in speed.lines(result)
    ]
    return Table("Sizes", heads, lines, range(1, 6 if over else 4))


def ranges(numbers: Iterable[int]) -> str:
    """ "0-7, 16" of numbers in their order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
