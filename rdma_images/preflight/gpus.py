"""Check that the job's GPUs are in the container, and the drivers that let adapters reach their memory."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator

from rdma_images.preflight.devices import Device
from rdma_images.preflight.system import Finding, first_line, has_library

DRIVER_FILE = "/proc/driver/nvidia/version"


def gpu_files(root: str = "") -> list[str]:
    """Return the files of the GPUs in this container."""
    return sorted(glob.glob(root + "/dev/nvidia[0-9]*"))


def nvidia_driver(root: str = "") -> str:
    """Return the version of NVIDIA's driver; "" for none."""
    match = re.search(r"\s(\d+\.\d+[.\d]*)\s", first_line(root + DRIVER_FILE))
    return match.group(1) if match else ""


def check_gpus(root: str, count: int) -> Iterator[Finding]:
    """Yield GPUs that are missing or hidden; `count` is how many the job has here, 0 for those visible."""
    gpus = gpu_files(root)
    visible = visible_gpus(len(gpus))
    if len(gpus) < count:
        yield "error", "gpus", f"{len(gpus)} of {count} GPUs are in the container"
    elif gpus and visible < max(1, count):
        setting = os.environ["CUDA_VISIBLE_DEVICES"]
        left = f"CUDA_VISIBLE_DEVICES={setting} leaves {visible} of {count or len(gpus)} GPUs"
        yield "error" if count else "warning", "gpus", f"{left}: Slurm sets it by --gpus-per-node, --gpus-per-task"


def visible_gpus(present: int) -> int:
    """Return how many GPUs CUDA shows: it stops at the first of CUDA_VISIBLE_DEVICES that is not present."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return present
    names = [name.strip() for name in setting.split(",")]
    is_gpu = [int(name) < present if name.isdecimal() else name.startswith(("GPU-", "MIG-")) for name in names]
    return [*is_gpu, False].index(False)


def check_gpudirect(root: str, devices: list[Device]) -> Iterator[Finding]:
    """Yield why this node's GPUs and adapters cannot share memory: `devices` are the fabric's that can be used."""
    if not gpu_files(root):
        return
    if not root and has_library("libgdrapi.so.2") and not os.path.exists("/dev/gdrdrv"):
        sentence = "the image has GDRCopy, and /dev/gdrdrv is not here: load gdrdrv, and give the pod the device"
        yield "warning", "gdrcopy", sentence
    has_dma_buf = "Open Kernel Module" in first_line(root + DRIVER_FILE)
    known = [device for device in devices if device.gpu_memory_peers]
    if known and not has_dma_buf and all(device.gpu_memory_peers == "NA" for device in known):
        reason = f"EFA's driver does not reach the GPUs' memory (p2p of {known[0].name} is NA)"
        yield "warning", "peer", f"{reason}: take NVIDIA's open kernel modules"
    if all(device.driver == "efa" for device in devices):
        return
    is_loaded = any(os.path.isdir(root + "/sys/module/" + name) for name in ("nvidia_peermem", "nv_peer_mem"))
    if not (is_loaded or has_dma_buf):
        sentence = "GPUDirect RDMA is off: modprobe nvidia_peermem, or take NVIDIA's open kernel modules (dma-buf)"
        yield "warning", "peermem", sentence
