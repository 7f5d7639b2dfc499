"""The bus bandwidth to expect from a job: what others published for such a job, and the line rate of a node."""

from collections.abc import Iterator

from rdma_images.core.sizes import message
from rdma_images.facts import table
from rdma_images.facts.busbw import PublishedRun, ReferenceBusbw, size_of
from rdma_images.jobs.results.expectations import Held
from rdma_images.jobs.results.result import Expected, Leg, Measurement, Reference

SPREAD = 0.1  # around what is published: runs of one job differ by a few percent, and most sizes have one run

# bus bandwidth / algorithm bandwidth of n ranks, as nccl-tests' doc/PERFORMANCE.md has it.
FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}


def expected(leg: Leg, held: Held) -> Expected:
    """What is known for the leg's instance type, nodes and collective."""
    row = leg.largest
    collective = row.collective if row else held.collective
    nodes = held.nodes or len(leg.nodes) or None
    line = _line_rate(held)
    busbw = best(row)
    return Expected(
        line_rate=line,
        published=tuple(_published(held.instance, nodes, leg.ranks or held.ranks, collective)),
        share=busbw / line.low if line and busbw else None,
    )


def _line_rate(held: Held) -> Reference | None:
    """What all network cards of a node carry in one direction."""
    if not held.about:
        return None
    rate = held.about.bandwidth / 8
    what = f"line rate of {held.instance}, {held.about.bandwidth} Gb/s"
    return Reference(what, None, rate, rate, "facts/instances.yaml")


def _published(instance: str, nodes: int | None, ranks: int | None, collective: str) -> Iterator[Reference]:
    """The published runs of such a job by size, the smallest first. Runs of other counts of GPUs are another job."""
    facts = table.read("reference-busbw.yaml", ReferenceBusbw)
    found: dict[int, list[tuple[float, PublishedRun]]] = {}
    for run in facts.runs.values():
        if (_bare(run.instance), run.nodes, run.ranks, run.collective) == (
            _bare(instance),
            nodes,
            ranks or run.ranks,
            collective,
        ):
            for size, busbw in run.busbw.items():
                found.setdefault(size_of(size), []).append((busbw, run))
    for count, rows in sorted(found.items()):
        values = [busbw for busbw, _ in rows]
        sources = "; ".join(dict.fromkeys(facts.cite(run) for _, run in rows))
        said = ", ".join(f"{value:g}" for value in values)
        what = f"{nodes} x {instance}, {collective} of {message(count)}: {said} GB/s"
        yield Reference(what, count, min(values) * (1 - SPREAD), max(values) * (1 + SPREAD), sources)


def _bare(instance: str) -> str:
    return instance.removeprefix("ml.").removeprefix("ecs.")


def best(row: Measurement | None) -> float | None:
    """The bus bandwidth of a row, out of place where it has that: what tables of others show."""
    half = (row.out_of_place or row.in_place) if row else None
    return half.busbw if half else None


def band(known: Expected, row: Measurement | None) -> Reference | None:
    """What is published for the row's size; None where nothing is."""
    return next((one for one in known.published if row and one.size == row.size), None)


def is_below(known: Expected, row: Measurement | None) -> bool:
    """Whether the row is below what is published for its size."""
    near, busbw = band(known, row), best(row)
    return near is not None and busbw is not None and busbw < near.low


def ranks_by_formula(row: Measurement) -> int | None:
    """How many ranks measured the row, from busbw / algbw; None where the numbers are too coarse to tell."""
    half, factor = row.out_of_place or row.in_place, FACTORS.get(row.collective)
    if not half or not half.algbw or not half.busbw or half.algbw < 5 or factor is None:
        return None
    # busbw = factor * (n-1)/n * algbw
    share = half.busbw / half.algbw / factor
    if not 0.45 < share < 0.995:  # beyond 200 ranks a digit of the table is more than a rank
        return None
    ranks = 1 / (1 - share)
    return round(ranks) if abs(ranks - round(ranks)) < 0.02 * ranks else None
