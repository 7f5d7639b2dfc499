"""Check the limits of memory and files that NCCL and the adapters need."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator

from rdma_images.preflight.devices import Device
from rdma_images.preflight.system import Finding, read_file

CAP_IPC_LOCK = 14  # bit of the capability that lifts the limit of locked memory
MIN_LOCKED_BYTES = 1 << 30  # NCCL registers its own buffers, of megabytes for each channel and peer
MIN_SHM_BYTES = 1 << 30  # Docker gives 64 MiB


def locked_memory(root: str = "") -> int | None:
    """Return the bytes that this process may lock; None for no limit, as with IPC_LOCK (not in CapBnd alone)."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    match = re.search(r"^CapEff:\s*(\w+)", read_file(root + "/proc/self/status"), re.MULTILINE)
    has_capability = match is not None and int(match.group(1), 16) >> CAP_IPC_LOCK & 1
    return None if limit == resource.RLIM_INFINITY or has_capability else limit


def huge_pages(root: str = "") -> dict[str, int]:
    """Return how many huge pages there are ("total") and are free ("free"), and the "bytes" of each."""
    lines = dict(re.findall(r"^(\w+): +(\d+)", read_file(root + "/proc/meminfo"), re.MULTILINE))
    total, free, kilobytes = (int(lines.get(name, 0)) for name in ("HugePages_Total", "HugePages_Free", "Hugepagesize"))
    return {"total": total, "free": free, "bytes": kilobytes * 1024}


def check_limits(root: str, devices: list[Device]) -> Iterator[Finding]:
    """Yield small limits of memory that the fabric's devices lock, of huge pages for EFA, and of /dev/shm."""
    limit = locked_memory(root)
    if devices and limit is not None:
        sentence = (
            "only %d KiB of memory can be locked; RDMA needs no limit. Docker: --ulimit memlock=-1:-1. "
            "Slurm: LimitMEMLOCK=infinity for slurmd. Kubernetes: the same for containerd; as root, IPC_LOCK also does."
        )
        yield "error" if limit < MIN_LOCKED_BYTES else "warning", "memlock", sentence % (limit // 1024)
    has_efa = any(device.driver == "efa" for device in devices)
    if has_efa and "HugePages_Free" in read_file(root + "/proc/meminfo") and not huge_pages(root)["free"]:
        yield "warning", "hugepages", "no huge page is free: sysctl vm.nr_hugepages before the job"
    stat = os.statvfs(root + "/dev/shm") if os.path.isdir(root + "/dev/shm") else None
    if stat and stat.f_bavail * stat.f_frsize < MIN_SHM_BYTES:  # over which NCCL connects the GPUs of a node
        sizes = (stat.f_bavail * stat.f_frsize >> 20, stat.f_blocks * stat.f_frsize >> 20)
        yield "warning", "shm", "%d of %d MiB are free in /dev/shm: NCCL and data loaders need more" % sizes
