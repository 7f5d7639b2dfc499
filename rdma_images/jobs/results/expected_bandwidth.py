"""The bus bandwidth to expect from a job, by what others published and the line rate of a node; why one has less."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator

from rdma_images.core.sizes import format_size
from rdma_images.facts import facts_file
from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.facts.origin import FactsFile, Row
from rdma_images.jobs.results.expectations import Expectations
from rdma_images.jobs.results.processes import Processes
from rdma_images.jobs.results.result import ExpectedBandwidth, Measurement, ReferenceBandwidth, RunResult

SPREAD = 0.1  # around what is published: runs of one job differ by a few percent, and most sizes have one run

# bus bandwidth / algorithm bandwidth of n ranks, by nccl-tests' doc/PERFORMANCE.md.
FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}

RISING = 1.05  # times the bus bandwidth of half the size: larger sizes would still be faster
Cause = tuple[str, tuple[str, ...]]  # and the lines that show it


UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_size(text: str) -> int:
    """Return the bytes of "16GiB". Raises ValueError for what is no size."""
    match = re.fullmatch(r"(\d{1,6})(B|KiB|MiB|GiB)", text)
    if not match:
        raise ValueError(f"{text!r} is no size: write it as 512B, 64KiB, 128MiB or 16GiB")
    return int(match[1]) * UNITS[match[2]]


def _check_size(text: str) -> str:
    parse_size(text)
    return text


Size = Annotated[str, AfterValidator(_check_size)]


class PublishedRun(Row):
    """One run that somebody published."""

    instance: str
    nodes: int
    ranks: int
    collective: str  # "all_reduce"
    gpudirect: Literal["yes", "no"] | None = None  # where it is said
    busbw: dict[Size, float]  # GB/s, by the size of the message


class ReferenceBusbw(FactsFile):
    """facts/reference-busbw.yaml."""

    FILE = "reference-busbw.yaml"

    runs: dict[str, PublishedRun]


def expected_bandwidth(run: RunResult, expectations: Expectations) -> ExpectedBandwidth:
    """Return what is known for the run's instance type, nodes and collective."""
    row = run.largest
    collective = row.collective if row else expectations.collective
    nodes = expectations.nodes or len(run.nodes) or None
    line_rate = _line_rate(expectations)
    busbw = best_busbw(row)
    return ExpectedBandwidth(
        line_rate=line_rate,
        published=tuple(_published_runs(expectations.instance, nodes, run.ranks or expectations.ranks, collective)),
        share=busbw / line_rate.low if line_rate and busbw else None,
    )


def _line_rate(expectations: Expectations) -> ReferenceBandwidth | None:
    """Return what all network cards of a node carry in one direction."""
    if not expectations.instance_type:
        return None
    rate = expectations.instance_type.bandwidth / 8
    origin = f"line rate of {expectations.instance}, {expectations.instance_type.bandwidth} Gb/s"
    return ReferenceBandwidth(origin, None, rate, rate, "facts/instances.yaml")


def _published_runs(
    instance: str, nodes: int | None, ranks: int | None, collective: str
) -> Iterator[ReferenceBandwidth]:
    """Yield the published runs of such a job, on as many GPUs, by size, the smallest first."""
    facts = facts_file.read(ReferenceBusbw)
    by_size: dict[int, list[tuple[float, PublishedRun]]] = {}
    for run in facts.runs.values():
        if (_base_type(run.instance), run.nodes, run.ranks, run.collective) == (
            _base_type(instance),
            nodes,
            ranks or run.ranks,
            collective,
        ):
            for size, busbw in run.busbw.items():
                by_size.setdefault(parse_size(size), []).append((busbw, run))
    for count, rows in sorted(by_size.items()):
        values = [busbw for busbw, _ in rows]
        sources = "; ".join(dict.fromkeys(facts.cite(run) for _, run in rows))
        listed = ", ".join(f"{value:g}" for value in values)
        origin = f"{nodes} x {instance}, {collective} of {format_size(count)}: {listed} GB/s"
        yield ReferenceBandwidth(origin, count, min(values) * (1 - SPREAD), max(values) * (1 + SPREAD), sources)


def _base_type(instance: str) -> str:
    return instance.removeprefix("ml.").removeprefix("ecs.")


def best_busbw(row: Measurement | None) -> float | None:
    """Return a row's bus bandwidth, out of place if it has that, as published tables do."""
    timing = (row.out_of_place or row.in_place) if row else None
    return timing.busbw if timing else None


def published_band(bandwidth: ExpectedBandwidth, row: Measurement | None) -> ReferenceBandwidth | None:
    """Return what is published for the row's size; None where nothing is."""
    return next((reference for reference in bandwidth.published if row and reference.size == row.size), None)


def is_below(bandwidth: ExpectedBandwidth, row: Measurement | None) -> bool:
    """Return whether the row is below what is published for its size."""
    reference, busbw = published_band(bandwidth, row), best_busbw(row)
    return reference is not None and busbw is not None and busbw < reference.low


def ranks_by_formula(row: Measurement) -> int | None:
    """Return how many ranks measured the row, from busbw / algbw.

    Returns:
        None where the numbers are too coarse to tell.
    """
    timing, factor = row.out_of_place or row.in_place, FACTORS.get(row.collective)
    if not timing or not timing.algbw or not timing.busbw or timing.algbw < 5 or factor is None:
        return None
    # busbw = factor * (n-1)/n * algbw
    share = timing.busbw / timing.algbw / factor
    if not 0.45 < share < 0.995:  # beyond 200 ranks a digit of the table is more than a rank
        return None
    ranks = 1 / (1 - share)
    return round(ranks) if abs(ranks - round(ranks)) < 0.02 * ranks else None


def slow_reasons(processes: Processes, wordings: NcclLogs, nccl: str | None) -> dict[str, tuple[str, ...]]:
    """Return the known reasons for slowness that the logs show, with their lines."""
    reasons: dict[str, tuple[str, ...]] = {}
    for row in wordings.slow.values():
        prefix, brace, suffix = row.why.partition("{")
        for meaning, lines in processes.evidence.items():
            matches = (
                meaning.startswith(prefix) and meaning.endswith(suffix.partition("}")[2])
                if brace
                else meaning == prefix
            )
            if matches and row.fits(nccl):
                reasons[meaning] = tuple(lines)
    return reasons


def low_bandwidth_causes(run: RunResult, expectations: Expectations) -> dict[str, tuple[str, ...]]:
    """Return the likely causes of too low a bandwidth, with the lines that show them."""
    logged = {meaning: lines for meaning, lines in run.evidence.items() if lines}
    return {**dict(_node_causes(run)), **logged, **run.slow, **dict(_measured_causes(run, expectations))}


def _node_causes(run: RunResult) -> Iterator[Cause]:
    """Yield adapters that are not used, and GPUDirect that is off."""
    lacking = [
        node for node in run.nodes if node.adapters and node.expected and int(node.adapters.value) < node.expected
    ]
    if lacking:
        names = ", ".join(node.name for node in lacking[:4])
        yield (
            f"fewer adapters than the node has: {names}",
            tuple(node.adapters.where for node in lacking[:4] if node.adapters),
        )
    without_gpudirect = [node for node in run.nodes if node.gpudirect and node.gpudirect.value != "yes"]
    if without_gpudirect:
        names = ", ".join(node.name for node in without_gpudirect[:4])
        yield (
            f"GPUDirect RDMA is off: {names}",
            tuple(node.gpudirect.where for node in without_gpudirect[:4] if node.gpudirect),
        )


def _measured_causes(run: RunResult, expectations: Expectations) -> Iterator[Cause]:
    """Yield what the rows themselves show."""
    last_two = _last_two(run.measurements)
    if last_two:
        row, smaller = last_two
        yield (
            f"the curve still rises at {format_size(row.size)}: measure larger sizes (-e)",
            (smaller.where, row.where),
        )
    gpus = len(run.nodes[0].ranks) if run.nodes else 0
    if expectations.instance_type and 0 < gpus < expectations.instance_type.gpus:
        yield (
            f"{gpus} of the {expectations.instance_type.gpus} GPUs of a node take part: each drives its own adapters",
            (),
        )


def _last_two(rows: Sequence[Measurement]) -> tuple[Measurement, Measurement] | None:
    """Return the two largest sizes, where the bus bandwidth still rises between them."""
    ordered = sorted(rows, key=lambda row: row.size)[-2:]
    timings = [row.out_of_place or row.in_place for row in ordered]
    if len(ordered) < 2 or not all(timing and timing.busbw for timing in timings):
        return None
    small, large = (timing.busbw for timing in timings if timing and timing.busbw)
    return (ordered[1], ordered[0]) if large > RISING * small else None
