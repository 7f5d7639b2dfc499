"""The machine's part in a container: RDMA devices, limits, huge pages, and what GPUDirect needs."""

from __future__ import annotations

import glob
import os
import re
import resource
from typing import Any

from rdma_images.validate.probes import tools

SYS = "/sys/class/infiniband"


def fabric_devices() -> dict[str, Any]:
    """Return the RDMA devices and what their use depends on, as the kernel reports it."""
    return {
        "instance": first_line("/sys/devices/virtual/dmi/id/product_name"),
        "vendor": first_line("/sys/devices/virtual/dmi/id/sys_vendor"),
        "nodes": sorted(os.path.basename(path) for path in glob.glob("/dev/infiniband/*")),
        "rdma": {os.path.basename(path): rdma_device(path) for path in sorted(glob.glob(SYS + "/*"))},
        "efa_domains": efa_domains(tools.run(tools.COMMANDS["fi_info -p efa"])["out"]),
        "memlock": memlock(),
        "huge_pages": huge_pages(),
        "compat_mode": first_line("/sys/module/erdma/parameters/compat_mode"),
        "modules": modules(),
        "nvidia_module": first_line("/proc/driver/nvidia/version"),
        "tools": {name: tools.run(tools.COMMANDS[name]) for name in ("fi_info -p efa", "ibv_devinfo")},
    }


def rdma_device(path: str) -> dict[str, Any]:
    """Return a device's driver, first port's state, MTU and peer-to-peer provider."""
    interfaces = glob.glob(path + "/device/net/*")
    return {
        "driver": os.path.basename(os.path.realpath(path + "/device/driver")),
        "state": first_line(path + "/ports/1/state"),
        "mtu": int(first_line(interfaces[0] + "/mtu") or 0) if interfaces else 0,
        "p2p": first_line(path + "/device/p2p"),
    }


def efa_domains(listing: str) -> list[str]:
    """Return the domains with reliable datagrams in what fi_info printed, each once."""
    blocks = re.split(r"^provider: ", listing, flags=re.MULTILINE)
    reliable = [block for block in blocks if block.startswith("efa") and "type: FI_EP_RDM" in block]
    matches = (re.search(r"^\s*domain: (\S+)", block, re.MULTILINE) for block in reliable)
    return sorted({match.group(1) for match in matches if match})


def memlock() -> int | None:
    """Return the bytes that a process may lock; None for no limit."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def huge_pages() -> dict[str, int]:
    """Return how many huge pages there are and are free, and the bytes of each."""
    pages = {"total": 0, "free": 0, "bytes": 0}
    names = {"HugePages_Total": ("total", 1), "HugePages_Free": ("free", 1), "Hugepagesize": ("bytes", 1024)}
    for name, value in re.findall(r"^(\w+): +(\d+)", text("/proc/meminfo"), re.MULTILINE):
        if name in names:
            key, factor = names[name]
            pages[key] = int(value) * factor
    return pages


def modules() -> list[str]:
    """Return the loaded kernel modules that matter to RDMA and GPUDirect."""
    pattern = re.compile(r"efa|erdma|ib_uverbs|nvidia_peermem|nv_peer_mem|gdrdrv|nvidia")
    names = [line.split(" ", 1)[0] for line in text("/proc/modules").splitlines()]
    return sorted(name for name in names if pattern.fullmatch(name))


def first_line(path: str) -> str:
    """Return the first line of a file of the kernel's; "" where there is none."""
    return text(path).split("\n", 1)[0].strip()


def text(path: str) -> str:
    """Return the content of a file of the kernel's; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
