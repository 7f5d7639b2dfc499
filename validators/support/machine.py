"""The RDMA devices and GPUs of a machine: those of a fabric, and how all-reduces over them ended."""

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts.nccl_logs import load_wordings
from rdma_images.inspection.machine import AllReduceRun, Devices, MeasuredGpus, RdmaDevice
from rdma_images.nccl_logs import verdict

VERDICTS = {"efa": "efa", "erdma": "eRDMA"}
NO_DEVICE = {fabric: f"this machine has no {fabric} device" for fabric in FABRIC_TITLES}


def too_few_gpus(gpus: MeasuredGpus, needed: int = 1) -> str:
    """Return why an all-reduce that needs so many GPUs was not run; "" where there are enough."""
    if gpus.count >= needed:
        return ""
    return f"this all-reduce needs {needed} GPU{'s' * (needed > 1)}: there are {gpus.count}"


def judge_run(run: AllReduceRun) -> verdict.Verdict:
    """Return the verdict on the log of an all-reduce."""
    return verdict.judge_lines(run.log.splitlines(), load_wordings())


def wrong_elements(run: AllReduceRun) -> int:
    """Return the wrong elements of all sizes and processes."""
    return sum(row.wrong for rows in run.rows for row in rows)


def is_complete(run: AllReduceRun) -> bool:
    """Return whether every process ended well and reported every size."""
    return bool(run.rows) and len(run.rows) == len(run.codes) and all(code == 0 for code in run.codes)


def bandwidths(run: AllReduceRun) -> str:
    """Return the bus bandwidth by size."""
    return ", ".join(f"{row.bytes >> 20} MiB at {row.busbw:.1f} GB/s" for row in run.rows[0]) if run.rows else "no data"


def fabric_devices(devices: Devices, fabric: str) -> dict[str, RdmaDevice]:
    """Return the RDMA devices of a fabric by name."""
    return {
        name: device
        for name, device in devices.rdma.items()
        if device.driver == fabric or (fabric == "erdma" and "erdma" in name)
    }
