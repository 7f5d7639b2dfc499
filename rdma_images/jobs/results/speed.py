"""The rows of a result's legs side by side: size, bus bandwidth, speed-up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rdma_images.jobs.results import expected
from rdma_images.jobs.results.result import Leg, Measurement, Result

TITLES = {"efa": "EFA", "eRDMA": "eRDMA", "InfiniBand": "InfiniBand", "fallback": "TCP"}
Key = tuple[str, int, str, str]  # collective, size, type, operation


@dataclass(frozen=True)
class Line:
    """A size of a collective. Bus bandwidths in GB/s, out of place."""

    collective: str
    size: int  # bytes
    busbw: float
    other: float | None  # of what stands beside it
    ratio: float | None  # busbw / other; None where one of both is 0
    wrong: int | None
    where: str


def lines(result: Result) -> tuple[Line, ...]:
    """The rows of the first leg with what TCP has for the same, by size."""
    return beside(result.legs)


def beside(legs: Sequence[Leg]) -> tuple[Line, ...]:
    """The rows of the first of the legs with what the second has for the same; of equal rows the last counts."""
    others = rows(legs[1]) if len(legs) > 1 else {}
    found = []
    for key, row in rows(legs[0]).items():
        busbw, other = expected.best(row), expected.best(others.get(key))
        if busbw is not None:
            ratio = busbw / other if busbw and other else None
            found.append(Line(row.collective, row.size, busbw, other, ratio, wrong(row), row.where))
    return tuple(found)


def rows(leg: Leg) -> dict[Key, Measurement]:
    """The rows of a leg by what they measured."""
    ordered = sorted(leg.measurements, key=lambda row: (row.collective, row.size))
    return {(row.collective, row.size, row.type, row.redop): row for row in ordered}


def wrong(row: Measurement) -> int | None:
    """Wrong elements of both halves; None where none was verified."""
    counts = [half.wrong for half in (row.out_of_place, row.in_place) if half and half.wrong is not None]
    return sum(counts) if counts else None


def title(leg: Leg) -> str:
    """What the leg's channels use, as the head of a column."""
    return "over TCP" if (leg.name, leg.network) == ("fabric", "fallback") else TITLES.get(leg.network, "bus bandwidth")


def bar(busbw: float, top: float, width: int) -> int:
    """The length of a bar on a logarithmic axis from 0.01 GB/s, which is as little as nccl-tests print, to `top`."""
    if busbw <= 0.01 or top <= 0.01:
        return 0
    return round(width * math.log(busbw / 0.01) / math.log(top / 0.01))
