"""Find why a job on the right fabric is slower than others of its kind, the likeliest cause first."""

from collections.abc import Iterator, Sequence

from rdma_images.core.sizes import format_size
from rdma_images.facts.nccl_logs import NcclLogs
from rdma_images.jobs.results.expectations import Expectations
from rdma_images.jobs.results.processes import Processes
from rdma_images.jobs.results.result import Measurement, RunResult

RISING = 1.05  # times the bus bandwidth of half the size: larger sizes would still be faster
Cause = tuple[str, tuple[str, ...]]  # and the lines that show it


def slow_reasons(processes: Processes, wordings: NcclLogs, nccl: str | None) -> dict[str, tuple[str, ...]]:
    """Return the known reasons for slow jobs that the logs show, in the table's order, with lines."""
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
    """Return the likely causes of a bus bandwidth below the expected, each with the lines that show it."""
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
