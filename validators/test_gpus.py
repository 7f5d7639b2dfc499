"""Whether the GPUs work, an all-reduce is right in every element, and NCCL's channels take the fabric."""

import pytest

from rdma_images import verdict
from rdma_images.validate.measured import Gpus, Run
from rdma_images.validate.plugin import Judge

SUM = "an all-reduce of whole numbers below 2**24 is exact in single precision"
LOG = "NCCL's own log, by facts/nccl-logs.yaml"


def run_of(gpus: Gpus, name: str) -> Run:
    """An all-reduce by name; skips where there were too few GPUs for one."""
    if gpus.count < 2:
        pytest.skip(f"an all-reduce needs two GPUs: there are {gpus.count}")
    return gpus.runs[name]


def verdict_on(run: Run) -> verdict.Verdict:
    """The verdict on the log of an all-reduce."""
    return verdict.judged(run.log.splitlines(), verdict.logs())


@pytest.mark.validator("gpu.visible", source="torch.cuda.device_count()", tier="gpu")
def test_visible(gpus: Gpus, judge: Judge) -> None:
    """torch sees the machine's GPUs."""
    if not gpus.count:
        pytest.skip("torch sees no GPU: there is none here, or the container was started without (--gpus all)")
    judge(
        len(set(gpus.names)) == 1,
        expected="at least one GPU, all of one kind",
        found=f"{gpus.count}: {', '.join(gpus.names)}",
        mend="look at `nvidia-smi -L`: a GPU of another kind slows every collective down to its own speed",
    )


@pytest.mark.validator("gpu.all-reduce", source=SUM, tier="gpu")
def test_all_reduce(gpus: Gpus, judge: Judge) -> None:
    """An all-reduce over all GPUs is right in every element."""
    run = run_of(gpus, "default")
    wrong = {row.bytes: sum(r[i].wrong for r in run.rows) for i, row in enumerate(run.rows[0])} if run.rows else {}
    speeds = ", ".join(f"{row.bytes >> 20} MiB at {row.busbw:.1f} GB/s" for row in run.rows[0]) if run.rows else ""
    judge(
        len(run.rows) == gpus.count and not any(wrong.values()) and all(code == 0 for code in run.codes),
        expected=f"0 wrong elements on all {gpus.count} ranks",
        found=f"{sum(wrong.values())} wrong elements on {len(run.rows)} ranks; {speeds}; exit codes {run.codes}",
        mend="look at NCCL's log in the report's facts, and at `dmesg` and `nvidia-smi -q` for errors of the GPUs",
    )


@pytest.mark.validator("gpu.peers", source=LOG, tier="gpu", severity="warning")
def test_peers(gpus: Gpus, judge: Judge) -> None:
    """Between the GPUs of one machine NCCL takes no network."""
    found = verdict_on(run_of(gpus, "default"))
    judge(
        found.network == "one node",
        expected="channels over NVLink, PCIe or shared memory",
        found=found.sentence,
        mend="unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE; give the container a larger /dev/shm (--shm-size)",
    )


@pytest.mark.validator("gpu.network", source=LOG, tier="gpu", fabric="any")
def test_network(gpus: Gpus, fabric: str, judge: Judge) -> None:
    """Where NCCL is made to use the network, its channels use the fabric."""
    found = verdict_on(run_of(gpus, "network"))
    judge(
        found.network == {"efa": "efa", "erdma": "eRDMA"}[fabric],
        expected={"efa": "channels over EFA", "erdma": "channels over eRDMA"}[fabric],
        found=found.sentence,
        mend="the sentence found says why; the static and device checks say what to do",
    )
