"""A result as the tables and sentences that the page and the terminal share."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.core.sizes import format_size
from rdma_images.jobs.results.result import Measurement, NodeResult, Result, RunResult
from rdma_images.nccl_logs.verdict import FABRIC_NETWORKS

TITLES = {"fallback": "TCP"} | {network: FABRIC_TITLES[fabric] for fabric, network in FABRIC_NETWORKS.items()}


@dataclass(frozen=True)
class ResultTable:
    """A table; `numbers` are the columns that have numbers."""

    heading: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()


@dataclass(frozen=True)
class ComparedSize:
    """A row with a bus bandwidth, beside the other run's row of the same size."""

    row: Measurement
    busbw: float
    baseline: float | None  # the other run's bus bandwidth

    @property
    def ratio(self) -> float | None:
        """Return the row's bus bandwidth by the other's; None where one of both is 0 or missing."""
        return self.busbw / self.baseline if self.busbw and self.baseline else None


def compare_sizes(run: RunResult, other: RunResult | None = None) -> tuple[ComparedSize, ...]:
    """Return a run's rows by collective and size, each with that of the other run."""
    other_rows = {_measured(row): row.busbw for row in other.measurements} if other else {}
    rows = sorted(run.measurements, key=lambda row: (row.collective, row.size))
    return tuple(ComparedSize(row, row.busbw, other_rows.get(_measured(row))) for row in rows if row.busbw is not None)


def _measured(row: Measurement) -> tuple[str, int, str, str, str]:
    return row.collective, row.size, row.type, row.redop, row.root


def bandwidth_note(result: Result) -> str:
    """Return the share of the line rate at the largest size, in a sentence; "" if it is unknown."""
    row, share = result.runs[0].largest, result.share
    if row is None or share is None:
        return ""
    above = "; on few nodes a tree moves less over the network than the formula supposes" if share > 1 else ""
    rate = f"line rate of {result.instance} = {result.line_rate:g} GB/s"
    return f"{rate}: {format_size(row.size)} is at {share:.0%} of it{above}"


def node_table(job_nodes: Sequence[NodeResult]) -> ResultTable:
    """Return a line for each node, with where the number of its adapters was read."""
    heads = ["node", "ranks", "adapters", "devices used", *("GPUDirect", "provider", "NCCL", "plugin", "libfabric")]
    return ResultTable("Nodes", [*heads, "read in"], [tuple(_node_cells(node)) for node in job_nodes])


def _node_cells(node: NodeResult) -> Iterator[str]:
    yield node.name
    yield ranges(node.ranks)
    expected = f" of {node.expected}" if node.expected else ""
    yield f"{node.adapters.value}{expected}" if node.adapters else "-"
    yield str(node.used or "-")
    for value in (node.gpudirect, node.provider, node.nccl, node.plugin, node.libfabric):
        yield value.value if value else "-"
    yield node.adapters.where if node.adapters else ""


def size_table(result: Result) -> ResultTable:
    """Return the sizes: bus bandwidths, speed-up, wrong elements and sources."""
    run, tcp = result.runs[0], result.run("tcp") if len(result.runs) > 1 else None
    title = TITLES.get(run.network, "bus bandwidth")
    network = "over TCP" if (run.name, run.network) == ("fabric", "fallback") else title
    heads = ["collective", "size", f"{network} GB/s", *(("TCP GB/s", "speed-up") if tcp else ())]
    rows = []
    for line in compare_sizes(run, tcp):
        other = "-" if line.baseline is None else f"{line.baseline:.2f}"
        speed_up = f"{line.ratio:.1f}x" if line.ratio else "-"
        wrong = "-" if line.row.wrong is None else str(line.row.wrong)
        numbers = (f"{line.busbw:.2f}", *((other, speed_up) if tcp else ()), wrong)
        rows.append((line.row.collective, format_size(line.row.size), *numbers, line.row.where))
    return ResultTable("Sizes", [*heads, "wrong", "read in"], rows, range(1, len(heads) + 1))


def ranges(numbers: Iterable[int]) -> str:
    """Return "0-7, 16" of numbers in their order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
