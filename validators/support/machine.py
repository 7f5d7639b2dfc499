"""The RDMA devices and GPUs of a machine: those of a fabric, and how all-reduces over them ended."""

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.inspection.machine import AllReduceRun, MeasuredGpus
from rdma_images.nccl_logs import verdict

LOG_SOURCE = "NCCL's own log, by facts/nccl-logs.yaml"
NO_DEVICE = {fabric: f"this machine has no {fabric} device" for fabric in FABRIC_TITLES}


def too_few_gpus(gpus: MeasuredGpus, needed: int = 1) -> str:
    """Return why an all-reduce that needs so many GPUs was not run; "" where there are enough."""
    if gpus.count >= needed:
        return ""
    return f"this all-reduce needs {needed} GPU{'s' * (needed > 1)}: there are {gpus.count}"


def judge_run(run: AllReduceRun) -> verdict.Verdict:
    """Return the verdict on the log of an all-reduce."""
    return verdict.judge_lines(run.log.splitlines(), load_log_patterns())


def has_right_sums(run: AllReduceRun) -> bool:
    """Return whether every process has the right sum."""
    return bool(run.answers) and all(answer.is_right for answer in run.answers)


def describe_run(run: AllReduceRun) -> str:
    """Return what came of an all-reduce: the processes that failed, or are wrong, or the bus bandwidth."""
    if errors := [f"process {number}: {answer.error}" for number, answer in enumerate(run.answers) if answer.error]:
        return "; ".join(errors)
    if not has_right_sums(run):
        return f"the sum is wrong on {sum(not answer.is_right for answer in run.answers)} of {len(run.answers)} GPUs"
    slowest = max(answer.seconds for answer in run.answers)
    bandwidth = run.bytes / slowest * 2 * (len(run.answers) - 1) / len(run.answers) / 1e9
    return f"the sum is right on all GPUs, {run.bytes >> 20} MiB at {bandwidth:.1f} GB/s"
