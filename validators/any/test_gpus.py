"""The GPUs of a machine: an all-reduce over them is right in every element."""

import pytest

from rdma_images.inspection.machine import MeasuredGpus
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.machine import bandwidths, is_complete, judge_run, too_few_gpus, wrong_elements

ALL_REDUCE_SOURCE = "an all-reduce of whole numbers below 2**24 is exact in single precision"
LOG_SOURCE = "NCCL's own log, by facts/nccl-logs.yaml"


@pytest.mark.validator("gpu.visible", source="torch.cuda, or cuDeviceGetCount() where there is no torch", tier="gpu")
def test_visible(gpus: MeasuredGpus, require: Requirement) -> None:
    """The machine's GPUs are seen."""
    if not gpus.count:
        pytest.skip("no GPU is seen: there is none here, or the container was started without (--gpus all)")
    require(
        len(set(gpus.names)) == 1,
        expected="at least one GPU, all of one kind",
        actual=f"{gpus.count}: {', '.join(gpus.names)}",
        fix="look at `nvidia-smi -L`: a GPU of another kind slows every collective down to its own speed",
    )


@pytest.mark.validator("gpu.all-reduce", source=ALL_REDUCE_SOURCE, tier="gpu")
def test_all_reduce(gpus: MeasuredGpus, require: Requirement) -> None:
    """An all-reduce over all GPUs is right in every element."""
    if reason := too_few_gpus(gpus, 2):
        pytest.skip(reason)
    run = gpus.runs["default"]
    require(
        is_complete(run) and not wrong_elements(run),
        expected=f"0 wrong elements on all {gpus.count} GPUs",
        actual=f"{wrong_elements(run)} wrong elements; {bandwidths(run)}; exit codes {run.codes}, by {run.program}",
        fix="look at NCCL's log in the report's facts, and at `dmesg` and `nvidia-smi -q` for errors of the GPUs",
    )


@pytest.mark.validator("gpu.peers", source=LOG_SOURCE, tier="gpu", severity="warning")
def test_peers(gpus: MeasuredGpus, require: Requirement) -> None:
    """Between the GPUs of one machine NCCL takes no network."""
    if reason := too_few_gpus(gpus, 2):
        pytest.skip(reason)
    log_verdict = judge_run(gpus.runs["default"])
    require(
        log_verdict.network == "one node",
        expected="channels over NVLink, PCIe or shared memory",
        actual=log_verdict.sentence,
        fix="unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE; give the container a larger /dev/shm (--shm-size)",
    )
