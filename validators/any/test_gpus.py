"""The GPUs of a machine: an all-reduce over them is right in every element."""

from rdma_images.inspection.machine import MeasuredGpus
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.machine import LOG_SOURCE, describe_run, has_right_sums, judge_run, too_few_gpus

ALL_REDUCE_SOURCE = "rdma_images/preflight/all_reduce_rank.py: ones are summed up, which single precision does exactly"


@validator("gpu.visible", source="cuDeviceGetCount() and cuDeviceGetName() of CUDA's driver", tier="gpu")
def test_visible(gpus: MeasuredGpus, require: Requirement) -> None:
    """CUDA sees the machine's GPUs, all of one kind."""
    if not gpus.count:
        skip("CUDA sees no GPU: there is none here, or the container was started without (--gpus all)")
    require(
        len(set(gpus.names)) == 1,
        expected="at least one GPU, all of one kind",
        actual=f"{gpus.count}: {', '.join(gpus.names)}",
        fix="look at `nvidia-smi -L`: a GPU of another kind slows every collective down to its own speed",
    )


@validator("gpu.all-reduce", source=ALL_REDUCE_SOURCE, tier="gpu")
def test_all_reduce(gpus: MeasuredGpus, require: Requirement) -> None:
    """An all-reduce over all GPUs is right in every element."""
    if reason := too_few_gpus(gpus, 2):
        skip(reason)
    run = gpus.runs["default"]
    require(
        has_right_sums(run),
        expected=f"the right sum on all {gpus.count} GPUs",
        actual=describe_run(run),
        fix="look at NCCL's log in the report's facts, and at `dmesg` and `nvidia-smi -q` for errors of the GPUs",
    )


@validator("gpu.peers", source=LOG_SOURCE, tier="gpu", severity="warning")
def test_peers(gpus: MeasuredGpus, require: Requirement) -> None:
    """Between the GPUs of one machine NCCL takes no network."""
    if reason := too_few_gpus(gpus, 2):
        skip(reason)
    log_verdict = judge_run(gpus.runs["default"])
    require(
        log_verdict.network == "one node",
        expected="channels over NVLink, PCIe or shared memory",
        actual=log_verdict.sentence,
        fix="unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE; give the container a larger /dev/shm (--shm-size)",
    )
