"""Compare two results: the bus bandwidth of each size, the ratio, and what else differs between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rdma_images.core.errors import RefusedError
from rdma_images.core.sizes import format_size
from rdma_images.jobs.results.result import Result
from rdma_images.jobs.results.tables import ComparedSize, ResultTable, compare_sizes

SAME = 0.05  # runs of one job differ by a few percent


@dataclass(frozen=True)
class Comparison:
    """The second of two results beside the first, for the same sizes."""

    sentence: str
    sizes: tuple[ComparedSize, ...]  # the rows of the second; `other` is the first's
    differences: tuple[tuple[str, str, str], ...]  # what, of the first, of the second


def compare(first: Result, second: Result) -> Comparison:
    """Compare the second result with the first. Raises RefusedError for no common size."""
    sizes = tuple(line for line in compare_sizes(second.runs[0], first.runs[0]) if line.baseline is not None)
    if not sizes:
        raise RefusedError(
            "the results have no size of a collective in common\nmeasure both with the same -b, -e and -f"
        )
    return Comparison(_sentence(sizes), sizes, tuple(_differences(first, second)))


def _sentence(sizes: Sequence[ComparedSize]) -> str:
    """Return the largest size, and at how many sizes the second is slower."""
    largest = max(sizes, key=lambda line: line.row.size)
    slower = sum(1 for line in sizes if line.ratio and line.ratio < 1 - SAME)
    faster = sum(1 for line in sizes if line.ratio and line.ratio > 1 + SAME)
    ratio = f", {largest.ratio:.2f} times the first" if largest.ratio else ""
    measurement = f"{largest.row.collective or 'collective'} of {format_size(largest.row.size)}"
    return (
        f"{measurement}: {largest.busbw:.4g} GB/s after {largest.baseline:.4g}{ratio}; "
        f"by more than {SAME:.0%} slower at {slower} and faster at {faster} of {len(sizes)} sizes"
    )


def _differences(first: Result, second: Result) -> Iterator[tuple[str, str, str]]:
    """Yield what else differs: a ratio between different hardware says nothing about an image."""
    for (name, first_value), (_, second_value) in zip(_facts(first), _facts(second), strict=True):
        if first_value != second_value:
            yield name, first_value, second_value


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what a result says about the job, apart from its rows."""
    run = result.runs[0]
    yield "verdict", result.sentence
    yield "image", result.digest or "-"
    yield "instance type", result.instance or "-"
    yield "nodes", str(len(run.nodes) or result.nodes or "-")
    yield "ranks", str(run.ranks)
    for name in ("adapters", "gpudirect", "provider", "nccl", "plugin", "libfabric"):
        values = sorted({value.value for node in run.nodes if (value := getattr(node, name))})
        yield {"gpudirect": "GPUDirect"}.get(name, name), ", ".join(values) or "-"


def tables(comparison: Comparison) -> tuple[ResultTable, ResultTable]:
    """Return the sizes, and what else differs."""
    rows = []
    for line in comparison.sizes:
        ratio = f"{line.ratio:.2f}" if line.ratio else "-"
        size = format_size(line.row.size)
        rows.append((line.row.collective, size, f"{line.baseline:.2f}", f"{line.busbw:.2f}", ratio))
    sizes = ResultTable("Sizes", ("collective", "size", "first GB/s", "second GB/s", "ratio"), rows, range(1, 5))
    return sizes, ResultTable("What else differs", ("", "first", "second"), comparison.differences)
