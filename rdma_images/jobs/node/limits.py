"""Check the node's limits of memory, files and disk."""

from __future__ import annotations

import glob
import os
import re
import resource
from typing import TYPE_CHECKING

from rdma_images.jobs.node.system import first_line, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.rdma_devices import Device

CAP_IPC_LOCK = 14  # bit of the capability that lifts the limit of locked memory
MIN_LOCKED_BYTES = 1 << 30  # bytes: NCCL registers its own buffers, of megabytes for each channel and peer
MIN_SHM_BYTES = 1 << 30  # bytes; Docker gives 64 MiB
MIN_DISK_BYTES = 1 << 30  # bytes free where jobs keep caches and temporary files
MIN_MEMORY_BYTES = 4 << 30  # bytes for each GPU: a rank of torch alone takes about two
# Open files of a rank for each other rank. Two H200 as two nodes, NCCL 2.28.9 over sockets: 20 after an all-reduce, 4
# more after an all-to-all, 14 for a second group. NCCL lifts the limit of the first rank alone (src/bootstrap.cc).
FILES_FOR_RANK = 16
THREADS_FOR_RANK = 64  # of torch, CUDA and NCCL, of the OpenMP of some cores, and of a few data loaders
MAX_PROCESSES = 400  # processes whose mappings are read
TEMPORARY_FILES = "for temporary files"
COMPILED_FOLDERS = ("TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", TEMPORARY_FILES)
FOLDERS = ("TMPDIR", "HF_HOME", "XDG_CACHE_HOME", "TORCH_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def check_memory(root: str, devices: list[Device], is_alone: bool = False) -> Iterator[Finding]:
    """Yield limits of locked memory, and a small /dev/shm.

    Args:
        root: The folder of all files.
        devices: The node's RDMA devices.
        is_alone: Whether NCCL needs no /dev/shm for data: the job has this node alone, and its GPUs NVLink.
    """
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    status = re.search(r"^CapEff:\s*(\w+)", read_file(root + "/proc/self/status"), re.MULTILINE)
    may_lock = status is not None and int(status.group(1), 16) >> CAP_IPC_LOCK & 1
    if devices and limit != resource.RLIM_INFINITY and not may_lock:
        sentence = (
            "locked memory is limited to %d KiB: --ulimit memlock=-1:-1 of docker, LimitMEMLOCK=infinity of systemd, "
            "or IPC_LOCK"
        )
        yield "error" if limit < MIN_LOCKED_BYTES else "warning", "memlock", sentence % (limit // 1024)
    space = disk_space(root + "/dev/shm")
    if space is None:
        return
    size, free = space
    stale = stale_files(root) if free < MIN_SHM_BYTES else []
    if size < MIN_SHM_BYTES and is_alone:
        yield "note", "shm", "/dev/shm has %d MiB: data loaders with worker processes need more" % (size >> 20)
    elif size < MIN_SHM_BYTES:
        yield "warning", "shm", "/dev/shm has %d MiB: NCCL and data loaders need more" % (size >> 20)
    elif free < MIN_SHM_BYTES:
        advice = ": %d files of ended processes fill it, as %s" % (len(stale), stale[0]) if stale else ""
        yield "warning", "shm", "%d of %d MiB are free in /dev/shm%s" % (free >> 20, size >> 20, advice)


def disk_space(folder: str) -> tuple[int, int] | None:
    """Return the size of the file system of a folder and what is free there, in bytes.

    Returns:
        None without the folder.
    """
    try:
        stat = os.statvfs(folder)
    except OSError:
        return None
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def stale_files(root: str) -> list[str]:
    """Return NCCL's and torch's files in /dev/shm that no process here has mapped."""
    files = [
        path[len(root) :]
        for pattern in ("nccl-*", "torch_*", "psm_*", "sem.mp-*", "__KMP_REGISTERED_LIB_*")
        for path in glob.glob(root + "/dev/shm/" + pattern)
    ]
    if not files:
        return []
    processes = glob.glob(root + "/proc/[0-9]*/maps")
    if len(processes) > MAX_PROCESSES:
        return []
    maps = "".join(read_file(path) for path in processes)
    return sorted(path for path in files if path not in maps)


def check_limits(root: str, gpus: int, nodes: int) -> Iterator[Finding]:
    """Yield small limits of the container's memory and of a process' open files."""
    texts = [first_line(root + "/sys/fs/cgroup" + name) for name in ("/memory.max", "/memory/memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text.isdigit()]
    if limits and gpus and limits[0] < gpus * MIN_MEMORY_BYTES:
        sentence = "the container may use %d MiB: ranks on %d GPUs need about %d MiB"
        yield "warning", "memory", sentence % (limits[0] >> 20, gpus, gpus * MIN_MEMORY_BYTES >> 20)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = FILES_FOR_RANK * max(1, gpus) * nodes + 512
    if limit != resource.RLIM_INFINITY and limit < needed:
        sentence = "a process may open %d files: %d ranks need about %d: ulimit -n, or --ulimit nofile of docker"
        yield "warning", "files", sentence % (limit, gpus * nodes, needed)


def check_threads(root: str, gpus: int) -> Iterator[Finding]:
    """Yield limits of processes and threads that a rank for each GPU exceeds."""
    limits = {}
    if os.getuid():  # the kernel limits no user 0
        limits["ulimit -u"] = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    texts = [first_line(root + "/sys/fs/cgroup" + name) for name in ("/pids.max", "/pids/pids.max")]
    limits["pids of the container's cgroup"] = next((int(text) for text in texts if text.isdigit()), -1)
    for name, limit in limits.items():
        if limit != resource.RLIM_INFINITY and limit < gpus * THREADS_FOR_RANK:
            sentence = "%d processes and threads are allowed (%s): ranks on %d GPUs need about %d"
            yield "warning", "threads", sentence % (limit, name, gpus, gpus * THREADS_FOR_RANK)


def check_folders(root: str) -> Iterator[Finding]:
    """Yield folders of caches and temporary files that are full or not writable."""
    folders = {os.environ["TMPDIR"]: "TMPDIR"} if os.environ.get("TMPDIR") else {"/tmp": TEMPORARY_FILES}
    folders.update((os.environ[name], name) for name in FOLDERS if os.environ.get(name))
    for folder, name in folders.items():
        space = disk_space(root + folder)
        if space is None:
            continue
        if not os.access(root + folder, os.W_OK):
            yield "warning", "disk", "%s, %s, cannot be written by this user" % (folder, name)
        elif space[1] < MIN_DISK_BYTES:
            yield "warning", "disk", "%d MiB are free in %s, %s" % (space[1] >> 20, folder, name)
        elif name in COMPILED_FOLDERS and os.statvfs(root + folder).f_flag & os.ST_NOEXEC:
            sentence = "%s, %s, is mounted noexec: what torch and Triton compile into it cannot be loaded"
            yield "warning", "disk", sentence % (folder, name)


def check_huge_pages(root: str, fabric: str) -> Iterator[Finding]:
    """Yield a finding if EFA's provider has no huge pages."""
    free = re.search(r"^HugePages_Free:\s*(\d+)", read_file(root + "/proc/meminfo"), re.MULTILINE)
    if fabric == "efa" and free and not int(free.group(1)):
        yield "warning", "hugepages", "no huge page is free: sysctl vm.nr_hugepages before the job"
