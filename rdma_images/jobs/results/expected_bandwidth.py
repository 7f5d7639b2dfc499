"""The bus bandwidth to expect from a job, by what others published and the line rate of a node."""

from collections.abc import Iterator

from rdma_images.core.sizes import format_size
from rdma_images.facts import facts_file
from rdma_images.facts.reference_busbw import PublishedRun, ReferenceBusbw, parse_size
from rdma_images.jobs.results.expectations import Expectations
from rdma_images.jobs.results.result import ExpectedBandwidth, Measurement, ReferenceBandwidth, RunResult

SPREAD = 0.1  # around what is published: runs of one job differ by a few percent, and most sizes have one run


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
