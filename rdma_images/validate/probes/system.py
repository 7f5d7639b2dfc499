"""The system that an image has, and the one that the probes run in."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from rdma_images.validate.probes import rootfs

MAX_RELEASE_BYTES = 1 << 16  # bytes of os-release
PREFIXES = ("NCCL_", "FI_", "OFI_", "LD_", "RDMAV_", "CUDA_", "PATH", "TORCH_NCCL_", "GLOO_", "NVSHMEM_")


def measure_system(root: rootfs.Root, environment: Mapping[str, str], machine: str) -> dict[str, Any]:
    """Return what files and environment say of a system; what only a process knows is empty."""
    return {
        "os": os_release(root),
        "machine": machine,
        "kernel": "",
        "python": "",
        "python_path": "",
        "python_folders": [],
        "user": 0,
        "environment": {name: value for name, value in environment.items() if name.startswith(PREFIXES)},
    }


def running_system() -> dict[str, Any]:
    """Return distribution, machine, kernel, Python and user of the process that measures."""
    return {
        **measure_system(rootfs.Root(), os.environ, platform.machine()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_path": sys.executable,
        "python_folders": [os.path.realpath(folder) for folder in sys.path if folder],
        "user": os.getuid(),
    }


def os_release(root: rootfs.Root) -> dict[str, str]:
    """Return the fields of os-release; empty without that file."""
    texts = (root.text(path, MAX_RELEASE_BYTES) for path in ("/etc/os-release", "/usr/lib/os-release"))
    lines = next((text for text in texts if text is not None), "").splitlines()
    pairs = (line.strip().split("=", 1) for line in lines if "=" in line)
    return {key: value.strip("\"'") for key, value in pairs}
