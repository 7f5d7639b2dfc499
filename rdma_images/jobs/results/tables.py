"""The rows of a result's runs side by side, as the tables and sentences that the page and the terminal share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rdma_images.core.sizes import format_size
from rdma_images.jobs.results import expected_bandwidth
from rdma_images.jobs.results.result import Measurement, NodeResult, Result, RunResult

TITLES = {"efa": "EFA", "eRDMA": "eRDMA", "InfiniBand": "InfiniBand", "fallback": "TCP"}
Key = tuple[str, int, str, str]  # collective, size, type, operation


@dataclass(frozen=True)
class SizeComparison:
    """A size of a collective. Bus bandwidths in GB/s, out of place."""

    collective: str
    size: int  # bytes
    busbw: float
    other: float | None  # of the run that it is compared with
    ratio: float | None  # busbw / other; None where one of both is 0
    wrong: int | None
    where: str


def compare_sizes(runs: Sequence[RunResult]) -> tuple[SizeComparison, ...]:
    """Return the first run's rows, each with the second run's of the same size."""
    other_rows = rows_by_key(runs[1]) if len(runs) > 1 else {}
    compared = []
    for key, row in rows_by_key(runs[0]).items():
        busbw, other_busbw = expected_bandwidth.best_busbw(row), expected_bandwidth.best_busbw(other_rows.get(key))
        if busbw is not None:
            ratio = busbw / other_busbw if busbw and other_busbw else None
            compared.append(
                SizeComparison(row.collective, row.size, busbw, other_busbw, ratio, wrong_elements(row), row.where)
            )
    return tuple(compared)


def rows_by_key(run: RunResult) -> dict[Key, Measurement]:
    """Return the rows of a run by what they measured."""
    ordered = sorted(run.measurements, key=lambda row: (row.collective, row.size))
    return {(row.collective, row.size, row.type, row.redop): row for row in ordered}


def wrong_elements(row: Measurement) -> int | None:
    """Return a row's wrong elements, both halves together; None if not verified."""
    counts = [timing.wrong for timing in (row.out_of_place, row.in_place) if timing and timing.wrong is not None]
    return sum(counts) if counts else None


def run_title(run: RunResult) -> str:
    """Return the head of a run's column: the network of its channels."""
    return "over TCP" if (run.name, run.network) == ("fabric", "fallback") else TITLES.get(run.network, "bus bandwidth")


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
    """Return the sizes: bus bandwidths, speed-up, wrong elements and sources."""
    with_tcp = result.run("tcp") is not None and len(result.runs) > 1
    heads = (
        "collective",
        "size",
        f"{run_title(result.runs[0])} GB/s",
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
        for line in compare_sizes(result.runs)
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
