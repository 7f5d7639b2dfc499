"""What the nodes of a job should have in common, and the versions of what carries the job."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from rdma_images.preflight.gpus import gpu_files, nvidia_driver
from rdma_images.preflight.system import first_line, has_library, read_file, run_program

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rdma_images.preflight.devices import Device

# Settings that decide how nodes and ranks reach each other. MASTER_ADDR need not be the same: the first node may call
# itself localhost.
SHARED_SETTINGS = re.compile(
    r"(NCCL|FI|OFI_NCCL|UCX|NVSHMEM|GLOO)_(?!DEBUG|HOSTID|LOG_)\w+|(PET_)?(MASTER_PORT|NNODES)|WORLD_SIZE"
)
EFA_INSTALLER = "/opt/amazon/efa_installed_packages"
EFA_DRIVER = "/sys/module/efa/version"
VERSION_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "version")


def shared_facts(root: str, devices: list[Device], nccl: str) -> dict[str, str]:
    """Return the facts that should be the same on all nodes; `devices` are the fabric's that can be used."""
    plugin = os.environ.get("NCCL_NET_PLUGIN", "")
    has_plugin = not root and has_library(plugin if plugin.endswith(".so") else "libnccl-net.so")
    routed = [str(index) for device in devices for index, gid, kind in device.gids if "v2" in kind and gid.ipv4_mapped]
    return {
        **{key: value for key, value in os.environ.items() if SHARED_SETTINGS.fullmatch(key)},
        "number of GPUs": str(len(gpu_files(root))),
        "NVIDIA driver": nvidia_driver(root),
        "NCCL": nccl,
        "NCCL's network plugin": "found" if has_plugin else "not found",
        "EFA driver": first_line(root + EFA_DRIVER),
        "RDMA devices": join_distinct(device.driver for device in devices),
        "number of usable RDMA devices": str(len(devices)),
        "firmware of adapters": join_distinct(device.firmware for device in devices),
        "link layers": join_distinct(device.link_layer for device in devices),
        "link rates": join_distinct(device.rate for device in devices),
        "MTU": join_distinct(device.mtu for device in devices),
        "indexes of RoCE v2": join_distinct(routed),
    }


def join_distinct(values: Iterable[str]) -> str:
    """Return the different ones of some values, in their order and with commas."""
    return ",".join(sorted(set(values)))


def describe_versions(nccl: str) -> str:
    """Return the versions of what carries the job on this node; `nccl` is NCCL's, "" where it is not known."""
    installer = re.search(r"EFA installer version: (\S+)", read_file(EFA_INSTALLER))
    libfabric = re.search(r"^libfabric: (\S+)", run_program("fi_info", "--version"), re.MULTILINE)
    versions = {
        "NCCL": nccl,
        "EFA installer": installer.group(1) if installer else "",
        "libfabric": libfabric.group(1) if libfabric else "",
        "EFA driver": first_line(EFA_DRIVER),
        "NVIDIA driver": nvidia_driver(),
        "preflight": first_line(VERSION_FILE),
    }
    return ", ".join("%s %s" % row for row in versions.items() if row[1])
