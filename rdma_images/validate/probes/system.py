"""The system that the probes found themselves in."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from rdma_images.validate.probes import access

USERS_KEPT = 1 << 20  # characters of /etc/passwd or /etc/group


def running_system() -> dict[str, Any]:
    """Distribution, machine, kernel, Python and user of the process that measures."""
    return {
        "os": os_release(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_path": sys.executable,
        "user": os.getuid(),
        "environment": {
            k: v for k, v in os.environ.items() if k.startswith(("NCCL_", "FI_", "OFI_", "LD_", "RDMAV_", "CUDA_"))
        },
    }


def user(said: str, root: str = "/") -> access.User | None:
    """Return the user that the image below `root` names; see access.user."""
    texts = []
    for name in ("etc/passwd", "etc/group"):
        try:
            with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
                texts.append(file.read(USERS_KEPT))
        except OSError:
            texts.append("")
    return access.user(said, texts[0], texts[1])


def os_release(root: str = "/") -> dict[str, str]:
    """Return the fields of os-release; empty where there is none."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
                pairs = (line.strip().split("=", 1) for line in file if "=" in line)
                return {key: value.strip("\"'") for key, value in pairs}
        except OSError:
            continue
    return {}
