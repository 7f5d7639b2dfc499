"""The machine's part in a container, as a job's preflight reads it, and what GPUDirect needs."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from rdma_images.preflight.devices import Device, locked_memory, read_devices
from rdma_images.preflight.system import first_line, read_file
from rdma_images.validate.probes import tools


def measure_devices() -> dict[str, Any]:
    """Return the RDMA devices and what their use depends on, as the kernel reports it."""
    return {
        "instance": first_line("/sys/devices/virtual/dmi/id/product_name"),
        "vendor": first_line("/sys/devices/virtual/dmi/id/sys_vendor"),
        "nodes": sorted(os.path.basename(path) for path in glob.glob("/dev/infiniband/*")),
        "rdma": {device.name: rdma_device(device) for device in read_devices()},
        "efa_domains": efa_domains(tools.run(tools.COMMANDS["fi_info -p efa"])["stdout"]),
        "memlock": locked_memory(),
        "huge_pages": huge_pages(read_file("/proc/meminfo")),
        "compat_mode": first_line("/sys/module/erdma/parameters/compat_mode"),
        "modules": modules(),
        "nvidia_module": first_line("/proc/driver/nvidia/version"),
        "tools": {name: tools.run(tools.COMMANDS[name]) for name in ("fi_info -p efa", "ibv_devinfo")},
    }


def rdma_device(device: Device) -> dict[str, Any]:
    """Return a device's driver, port's state, MTU and peer-to-peer provider."""
    return {"driver": device.driver, "state": device.state, "mtu": int(device.mtu or 0), "p2p": device.gpu_memory_peers}


def huge_pages(meminfo: str) -> dict[str, int]:
    """Return how many huge pages there are ("total") and are free ("free"), and the "bytes" of each."""
    lines = dict(re.findall(r"^(\w+): +(\d+)", meminfo, re.MULTILINE))
    total, free, kilobytes = (int(lines.get(name, 0)) for name in ("HugePages_Total", "HugePages_Free", "Hugepagesize"))
    return {"total": total, "free": free, "bytes": kilobytes * 1024}


def efa_domains(listing: str) -> list[str]:
    """Return the domains with reliable datagrams in what fi_info printed, each once."""
    blocks = re.split(r"^provider: ", listing, flags=re.MULTILINE)
    reliable = [block for block in blocks if block.startswith("efa") and "type: FI_EP_RDM" in block]
    matches = (re.search(r"^\s*domain: (\S+)", block, re.MULTILINE) for block in reliable)
    return sorted({match.group(1) for match in matches if match})


def modules() -> list[str]:
    """Return the loaded kernel modules that matter to RDMA and GPUDirect."""
    pattern = re.compile(r"efa|erdma|ib_uverbs|nvidia_peermem|nv_peer_mem|gdrdrv|nvidia")
    names = [line.split(" ", 1)[0] for line in read_file("/proc/modules").splitlines()]
    return sorted(name for name in names if pattern.fullmatch(name))
