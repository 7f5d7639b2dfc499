"""Compare two results: the bus bandwidth of each size, the ratio, and what else differs between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rdma_images.core.errors import RefusedError
from rdma_images.core.sizes import format_size
from rdma_images.jobs.results.result import Result
from rdma_images.jobs.results.tables import ResultTable, SizeComparison, compare_sizes

SAME = 0.05  # runs of one job differ by a few percent


@dataclass(frozen=True)
class Comparison:
    """Two results for the same sizes. `ratio` of a line is the second by the first."""

    sentence: str
    lines: tuple[SizeComparison, ...]  # `busbw` is the second's, `other` the first's
    differences: tuple[tuple[str, str, str], ...]  # what, of the first, of the second


def compare(first: Result, second: Result) -> Comparison:
    """Compare the second result with the first. Raises RefusedError for no common size."""
    lines = tuple(line for line in compare_sizes((second.runs[0], first.runs[0])) if line.other is not None)
    if not lines:
        raise RefusedError(
            "the results have no size of a collective in common\nmeasure both with the same -b, -e and -f"
        )
    return Comparison(_sentence(lines), lines, tuple(_differences(first, second)))


def _sentence(lines: Sequence[SizeComparison]) -> str:
    """Return the largest size, and at how many sizes the second is slower."""
    largest = max(lines, key=lambda line: line.size)
    slower = sum(1 for line in lines if line.ratio and line.ratio < 1 - SAME)
    faster = sum(1 for line in lines if line.ratio and line.ratio > 1 + SAME)
    ratio = f", {largest.ratio:.2f} times the first" if largest.ratio else ""
    measurement = f"{largest.collective or 'collective'} of {format_size(largest.size)}"
    return (
        f"{measurement}: {largest.busbw:.4g} GB/s after {largest.other:.4g}{ratio}; "
        f"by more than {SAME:.0%} slower at {slower} and faster at {faster} of {len(lines)} sizes"
    )


def _differences(first: Result, second: Result) -> Iterator[tuple[str, str, str]]:
    """Yield what else differs: a ratio between different hardware says nothing about an image."""
    facts_of_runs = [dict(_facts(result)) for result in (first, second)]
    for name in dict.fromkeys((*facts_of_runs[0], *facts_of_runs[1])):
        first_value, second_value = (run_facts.get(name, "-") for run_facts in facts_of_runs)
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
    for line in comparison.lines:
        ratio = f"{line.ratio:.2f}" if line.ratio else "-"
        rows.append((line.collective, format_size(line.size), f"{line.other:.2f}", f"{line.busbw:.2f}", ratio))
    sizes = ResultTable("Sizes", ("collective", "size", "first GB/s", "second GB/s", "ratio"), rows, range(1, 5))
    return sizes, ResultTable("What else differs", ("", "first", "second"), comparison.differences)
