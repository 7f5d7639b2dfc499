"""Show a result as tables and sentences, which the page and the terminal share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rdma_images.core.sizes import format_size
from rdma_images.jobs.results import expected_bandwidth, speed
from rdma_images.jobs.results.result import NodeResult, Result


@dataclass(frozen=True)
class ResultTable:
    """A table; `numbers` are the columns that have numbers."""

    heading: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()


def comparison_notes(result: Result) -> list[str]:
    """Return what the row of the largest size is compared with."""
    bandwidth, row = result.expected, result.runs[0].largest
    band, busbw = expected_bandwidth.published_band(bandwidth, row), expected_bandwidth.best_busbw(row)
    if row is None or busbw is None:
        return []
    sentences, rate = [], bandwidth.line_rate
    if rate and bandwidth.share is not None:
        above = (
            "; on few nodes a tree moves less over the network than the formula supposes" if bandwidth.share > 1 else ""
        )
        sentences.append(
            f"{rate.title} = {rate.low:g} GB/s: {format_size(row.size)} is at {bandwidth.share:.0%} of it{above}"
        )
    if band:
        position = "below" if busbw < band.low else "above" if busbw > band.high else "in"
        sentences.append(f"published: {band.title}; {band.source}")
        sentences.append(f"{busbw:.4g} GB/s is {position} {band.low:.4g} to {band.high:.4g} GB/s")
    elif result.instance:
        nodes = result.nodes or len(result.runs[0].nodes)
        sentences.append(
            f"nothing is published for {row.collective or 'this'} of {format_size(row.size)} "
            f"on {nodes} x {result.instance}"
        )
    return sentences


def node_table(job_nodes: Sequence[NodeResult]) -> ResultTable:
    """Return a line for each node, with where the number of its adapters was read."""
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
                value.value if value else "-"
                for value in (node.gpudirect, node.provider, node.nccl, node.plugin, node.libfabric)
            ),
            node.adapters.where if node.adapters else "",
        )
        for node in job_nodes
    ]
    return ResultTable("Nodes", heads, lines)


def size_table(result: Result) -> ResultTable:
    """Return size, bus bandwidth of the runs, speed-up, wrong elements, and where the row was read."""
    with_tcp = result.run("tcp") is not None and len(result.runs) > 1
    heads = (
        "collective",
        "size",
        f"{speed.run_title(result.runs[0])} GB/s",
        *(("TCP GB/s", "speed-up") if with_tcp else ()),
        "wrong",
        "read in",
    )
    lines = [
        (
            line.collective,
            format_size(line.size),
            f"{line.busbw:.2f}",
            *(
                (f"{line.other:.2f}" if line.other is not None else "-", f"{line.ratio:.1f}x" if line.ratio else "-")
                if with_tcp
                else ()
            ),
            "-" if line.wrong is None else str(line.wrong),
            line.where,
        )
        for line in speed.compare_sizes(result.runs)
    ]
    return ResultTable("Sizes", heads, lines, range(1, 6 if with_tcp else 4))


def ranges(numbers: Iterable[int]) -> str:
    """Return "0-7, 16" of numbers in their order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
