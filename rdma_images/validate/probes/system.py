"""The system that an image has, and the one that the probes run in."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from rdma_images.validate.probes import access, rootfs

MAX_USERS_BYTES = 1 << 20  # bytes of /etc/passwd or /etc/group
MAX_RELEASE_BYTES = 1 << 16  # bytes of os-release
# Folders that libraries of a training or a server write to as they start.
CACHES = (
    *("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "HF_DATASETS_CACHE"),
    *("TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "TMPDIR"),
    *("VLLM_CACHE_ROOT", "FLASHINFER_WORKSPACE_BASE", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "CUDA_CACHE_PATH"),
)
PREFIXES = ("NCCL_", "FI_", "OFI_", "LD_", "RDMAV_", "CUDA_", "PATH", "TORCH_NCCL_", "GLOO_", "NVSHMEM_")


def system(root: rootfs.Root, environment: Mapping[str, str], machine: str) -> dict[str, Any]:
    """Return what files and environment say of a system; what only a process knows is empty."""
    return {
        "os": os_release(root),
        "machine": machine,
        "kernel": "",
        "python": "",
        "python_path": "",
        "user": 0,
        "environment": {name: value for name, value in environment.items() if name.startswith(PREFIXES)},
    }


def running_system() -> dict[str, Any]:
    """Return distribution, machine, kernel, Python and user of the process that measures."""
    return {
        **system(rootfs.Root(), os.environ, platform.machine()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_path": sys.executable,
        "user": os.getuid(),
    }


def user(name: str, root: rootfs.Root) -> access.User | None:
    """Return the user that an image names; see access.parse_user."""
    passwd, group = (root.text(path, MAX_USERS_BYTES) or "" for path in ("/etc/passwd", "/etc/group"))
    return access.parse_user(name, passwd, group)


def unwritable(name: str, root: rootfs.Root, environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the home and caches that an image's user may not write to: see access.unwritable.

    This process may be another user's, whose HOME the engine has set.
    """
    who = user(name, root)
    if not who or not who.number:
        return {}
    own_home = access.home(name, root.text("/etc/passwd", MAX_USERS_BYTES) or "")
    folders = {"HOME": own_home, **{cache: environment.get(cache, "") for cache in CACHES}}
    named = {variable: path for variable, path in folders.items() if path.startswith("/")}
    return access.unwritable(who, named, root)


def os_release(root: rootfs.Root) -> dict[str, str]:
    """Return the fields of os-release; empty where there is none."""
    texts = (root.text(path, MAX_RELEASE_BYTES) for path in ("/etc/os-release", "/usr/lib/os-release"))
    lines = next((text for text in texts if text is not None), "").splitlines()
    pairs = (line.strip().split("=", 1) for line in lines if "=" in line)
    return {key: value.strip("\"'") for key, value in pairs}
