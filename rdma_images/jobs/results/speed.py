"""The rows of a result's runs side by side: size, bus bandwidth, speed-up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rdma_images.jobs.results import expected_bandwidth
from rdma_images.jobs.results.result import Measurement, RunResult

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
    """Return the first run's rows, each with the second run's for the same size; of equal rows the last counts."""
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
    """Return the number of wrong elements, in and out of place together; None where nothing was verified."""
    counts = [timing.wrong for timing in (row.out_of_place, row.in_place) if timing and timing.wrong is not None]
    return sum(counts) if counts else None


def run_title(run: RunResult) -> str:
    """Return the head of a run's column: the network of its channels."""
    return "over TCP" if (run.name, run.network) == ("fabric", "fallback") else TITLES.get(run.network, "bus bandwidth")


def bar_length(busbw: float, top: float, width: int) -> int:
    """Return the length of a bar on a logarithmic axis from 0.01 GB/s, the least that nccl-tests print, to `top`."""
    if busbw <= 0.01 or top <= 0.01:
        return 0
    return round(width * math.log(busbw / 0.01) / math.log(top / 0.01))
