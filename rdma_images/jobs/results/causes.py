"""Why a job on the right fabric is slower than others of its kind: what its logs show, the likeliest cause first."""

from collections.abc import Iterator, Sequence

from rdma_images.core.sizes import message
from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.jobs.results.expectations import Held
from rdma_images.jobs.results.processes import Processes
from rdma_images.jobs.results.result import Leg, Measurement

RISING = 1.05  # times the bus bandwidth of half the size: larger sizes would still be faster
Cause = tuple[str, tuple[str, ...]]  # and the lines that show it


def slow(processes: Processes, wordings: NcclLogs, nccl: str | None) -> dict[str, tuple[str, ...]]:
    """What the logs say of the table of what makes jobs slow, in its order, with the first lines of each."""
    found: dict[str, tuple[str, ...]] = {}
    for row in wordings.slow.values():
        before, brace, after = row.why.partition("{")
        for meaning, places in processes.evidence.items():
            named = (
                meaning.startswith(before) and meaning.endswith(after.partition("}")[2]) if brace else meaning == before
            )
            if named and row.fits(nccl):
                found[meaning] = tuple(places)
    return found


def causes(leg: Leg, held: Held) -> dict[str, tuple[str, ...]]:
    """The likely causes of a bus bandwidth below the expected, each with the lines that show it."""
    return dict((*_nodes(leg), *_noted(leg), *leg.slow.items(), *_measured(leg, held)))


def _nodes(leg: Leg) -> Iterator[Cause]:
    """Adapters that are not used, and GPUDirect that is off."""
    few = [node for node in leg.nodes if node.adapters and node.expected and int(node.adapters.value) < node.expected]
    if few:
        names = ", ".join(node.name for node in few[:4])
        yield (
            f"fewer adapters than the node has: {names}",
            tuple(node.adapters.where for node in few[:4] if node.adapters),
        )
    off = [node for node in leg.nodes if node.gpudirect and node.gpudirect.value != "yes"]
    if off:
        names = ", ".join(node.name for node in off[:4])
        yield f"GPUDirect RDMA is off: {names}", tuple(node.gpudirect.where for node in off[:4] if node.gpudirect)


def _noted(leg: Leg) -> Iterator[Cause]:
    yield from ((meaning, places) for meaning, places in leg.evidence.items() if places)


def _measured(leg: Leg, held: Held) -> Iterator[Cause]:
    """What the rows themselves say."""
    last = _last_two(leg.measurements)
    if last:
        row, before = last
        yield f"the curve still rises at {message(row.size)}: measure larger sizes (-e)", (before.where, row.where)
    gpus = len(leg.nodes[0].ranks) if leg.nodes else 0
    if held.about and 0 < gpus < held.about.gpus:
        yield f"{gpus} of the {held.about.gpus} GPUs of a node take part: each drives its own adapters", ()


def _last_two(rows: Sequence[Measurement]) -> tuple[Measurement, Measurement] | None:
    """The two largest sizes, where the bus bandwidth still rises between them."""
    ordered = sorted(rows, key=lambda row: row.size)[-2:]
    halves = [row.out_of_place or row.in_place for row in ordered]
    if len(ordered) < 2 or not all(half and half.busbw for half in halves):
        return None
    small, large = (half.busbw for half in halves if half and half.busbw)
    return (ordered[1], ordered[0]) if large > RISING * small else None
