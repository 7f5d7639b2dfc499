"""Validators of the GPUs: an all-reduce is right in every element, and NCCL's channels take the fabric."""

import pytest

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.inspection.machine import AllReduceRun, MeasuredGpus
from rdma_images.nccl_logs import verdict
from rdma_images.validate import plugin_log
from rdma_images.validate.pytest_plugin import Requirement

ALL_REDUCE_SOURCE = "an all-reduce of whole numbers below 2**24 is exact in single precision"
LOG_SOURCE = "NCCL's own log, by facts/nccl-logs.yaml"
VERDICTS = {"efa": "efa", "erdma": "eRDMA"}
REFUSAL_FIXES = {
    "efa": "set FI_PROVIDER=efa beside NCCL_NET: without it the plugin takes libfabric's tcp provider",
    "erdma": "set NCCL_NET=IB: without it NCCL uses TCP sockets",
}


def too_few_gpus(gpus: MeasuredGpus, needed: int = 1) -> str:
    """Return why an all-reduce that needs so many GPUs was not run; "" where there are enough."""
    if gpus.count >= needed:
        return ""
    return f"this all-reduce needs {needed} GPU{'s' * (needed > 1)}: there are {gpus.count}"


def judge_run(run: AllReduceRun) -> verdict.Verdict:
    """Return the verdict on the log of an all-reduce."""
    return verdict.judge_lines(run.log.splitlines(), verdict.load_wordings())


def wrong_elements(run: AllReduceRun) -> int:
    """Return the wrong elements of all sizes and processes."""
    return sum(row.wrong for rows in run.rows for row in rows)


def is_complete(run: AllReduceRun) -> bool:
    """Return whether every process ended well and reported every size."""
    return bool(run.rows) and len(run.rows) == len(run.codes) and all(code == 0 for code in run.codes)


def bandwidths(run: AllReduceRun) -> str:
    """Return the bus bandwidth by size."""
    return ", ".join(f"{row.bytes >> 20} MiB at {row.busbw:.1f} GB/s" for row in run.rows[0]) if run.rows else "no data"


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


@pytest.mark.validator("gpu.network", source=LOG_SOURCE, tier="gpu", fabric="any")
def test_network(gpus: MeasuredGpus, fabric: str, require: Requirement) -> None:
    """Between two GPUs that NCCL takes for two nodes, its channels use the fabric."""
    if not gpus.network.device:
        pytest.skip(f"the machine has no device of {FABRIC_TITLES[fabric]}: see gpu.plugin and gpu.refusal")
    if reason := too_few_gpus(gpus):
        pytest.skip(reason)
    log_verdict = judge_run(gpus.runs["two-nodes"])
    require(
        log_verdict.network == VERDICTS[fabric],
        expected=f"channels over {FABRIC_TITLES[fabric]}",
        actual=log_verdict.sentence,
        fix="the sentence found says why; the static and device checks say what to do",
    )


@pytest.mark.validator("gpu.plugin", source=LOG_SOURCE, tier="gpu", fabric="efa")
def test_plugin(gpus: MeasuredGpus, require: Requirement) -> None:
    """Between two nodes the plugin is loaded, starts, registers memory and moves data, right in every element."""
    if not gpus.network.plugin:
        pytest.skip("the loader finds no plugin for libfabric: see plugin.found")
    if reason := too_few_gpus(gpus):
        pytest.skip(reason)
    run = gpus.runs["two-nodes"]
    if gpus.network.device and judge_run(run).network != VERDICTS["efa"]:
        pytest.skip("the channels do not use EFA: see gpu.network")
    work = plugin_log.plugin_steps(run.log, verdict.load_wordings())
    without_efa = "" if gpus.network.device else ", in the place of EFA, for which the machine has no device"
    require(
        work.is_complete and is_complete(run) and not wrong_elements(run),
        expected="loaded, started, connected to another node over libfabric, 0 wrong elements",
        actual=f"{work.sentence}; {wrong_elements(run)} wrong elements; {bandwidths(run)}; "
        f"exit codes {run.codes}{without_efa}",
        fix="look at NCCL's log in the report's facts: it shows which of these steps failed; the checks plugin.* and "
        "libfabric.* of the static tier say what to do",
    )


@pytest.mark.validator("gpu.refusal", source=LOG_SOURCE, tier="gpu", fabric="any")
def test_refusal(gpus: MeasuredGpus, fabric: str, require: Requirement) -> None:
    """Where the fabric is not, the image's own environment makes NCCL end with an error."""
    if not gpus.network.insists:
        pytest.skip("the image allows a fallback: its NCCL_NET names no network")
    if gpus.network.device:
        pytest.skip(f"the machine has a device of {FABRIC_TITLES[fabric]}: there is nothing to refuse")
    if reason := too_few_gpus(gpus):
        pytest.skip(reason)
    run = gpus.runs["refusal"]
    log_verdict = judge_run(run)
    require(
        log_verdict.network == "refused" and not run.rows and all(code not in (0, None) for code in run.codes),
        expected=f"an error of every process, before it moves data, since there is no {FABRIC_TITLES[fabric]}",
        actual=f"exit codes {run.codes}; {bandwidths(run)}; {log_verdict.sentence}",
        fix=REFUSAL_FIXES[fabric],
    )
