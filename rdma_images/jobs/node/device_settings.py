"""Check that the libraries' variables name RDMA devices, GIDs and traffic classes of this node."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.rdma_devices import Device

# The libraries' variables: of devices, of the index of a GID and of a traffic class; "" for none. NCCL's come first.
# NVIDIA/nccl, src/transport/net_ib; uccl, collective/rdma; UCX, src/ucp/core; NVSHMEM, src/modules/transport/common;
# Mooncake, mooncake-transfer-engine/src/config.cpp, which reads NCCL_IB_GID_INDEX where its own one is not set.
DEVICE_SETTINGS = (
    ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TC"),
    ("UCCL_IB_HCA", "UCCL_IB_GID_INDEX", "UCCL_IB_TC"),
    ("UCX_NET_DEVICES", "UCX_IB_GID_INDEX", "UCX_IB_TRAFFIC_CLASS"),
    ("NVSHMEM_HCA_LIST", "NVSHMEM_IB_GID_INDEX", "NVSHMEM_IB_TRAFFIC_CLASS"),
    ("NVSHMEM_HCA_PE_MAPPING", "", ""),
    ("MOONCAKE_DEVICE", "MC_GID_INDEX", "MC_IB_TC"),
)
TAKES_BEGINNINGS = ("NCCL_IB_HCA", "UCCL_IB_HCA")  # of names, where no = stands before them


def named_devices(devices: list[Device], variable: str, setting: str) -> dict[str, list[Device]]:
    """Return the devices that each name in a variable's value stands for."""
    takes_beginnings = variable in TAKES_BEGINNINGS and "=" not in setting
    names: dict[str, list[Device]] = {}
    for word in setting.lstrip("^=").split(","):
        name, _, port_and_rate = word.strip().partition(":")
        port = port_and_rate.partition(":")[0]
        names[word.strip()] = [
            device
            for device in devices
            if (device.name == name or (takes_beginnings and device.name.startswith(name)))
            and (not port.isdigit() or port in device.ports)
        ]
    names.pop("", None)
    return names


def selected_devices(devices: list[Device], variable: str, setting: str) -> list[Device]:
    """Return the devices that a variable's value leaves; all, where it names none of them."""
    named = [device for fitting in named_devices(devices, variable, setting).values() for device in fitting]
    return [device for device in devices if (device in named) != setting.startswith("^")] if named else devices


def check_names_of_devices(root: str, devices: list[Device], variable: str, setting: str) -> Iterator[Finding]:
    """Yield the names in a variable that no adapter here has, and a half of a port."""
    if not devices or not re.fullmatch(r"=?[\w:.,\- ]*", setting):  # of excluded ones none need be here
        return
    names = named_devices(devices, variable, setting)
    for word, fitting in names.items():
        name = word.partition(":")[0]
        is_interface = variable == "UCX_NET_DEVICES" and (
            word == "all" or os.path.exists(root + "/sys/class/net/" + name)
        )
        if fitting or is_interface:
            continue
        has_name = any(device.name == name for device in devices)
        missing = "port of it has that number" if has_name else "adapter here has that name"
        yield "warning", "devices", "%s names %s, and no %s" % (variable, word, missing)
    named = [device for fitting in names.values() for device in fitting]
    for device in devices if variable in TAKES_BEGINNINGS else ():
        half = next((other for other in named if device not in named and are_halves(other, device)), None)
        if half and device.usable and "ACTIVE" in device.state:
            sentence = "%s and %s are halves of one port, each with a part of its bandwidth, and %s names one alone"
            yield "warning", "devices", sentence % (half.name, device.name, variable)


def check_settings(root: str, devices: list[Device], carriers: list[Device]) -> Iterator[Finding]:
    """Yield the libraries' variables that do not fit the devices, GIDs and classes here."""
    for device_variable, gid_variable, class_variable in DEVICE_SETTINGS:
        setting = os.environ.get(device_variable, "")
        yield from check_names_of_devices(root, devices, device_variable, setting)
        selected = selected_devices(carriers, device_variable, setting)
        yield from check_gid_index(selected, gid_variable, os.environ.get(gid_variable, ""))
        yield from check_traffic_class(selected, class_variable, os.environ.get(class_variable, ""))


def check_prefix(devices: list[Device]) -> Iterator[Finding]:
    """Yield a finding if NVSHMEM's IBGDA skips every adapter by its name."""
    prefix = os.environ.get("NVSHMEM_HCA_PREFIX", "mlx5")
    names = [device.name for device in devices if device.usable and device.driver.startswith("mlx5")]
    if names and any(name.startswith("NVSHMEM_") for name in os.environ) and not any(prefix in name for name in names):
        sentence = "NVSHMEM's IBGDA takes adapters with %s in their names, and %s has it not: set NVSHMEM_HCA_PREFIX"
        yield "warning", "devices", sentence % (prefix, names[0])


def check_gid_index(devices: list[Device], variable: str, index: str) -> Iterator[Finding]:
    """Yield RoCE devices whose table has no GID at an index, or a link-local one."""
    if not re.fullmatch(r"\d+", index):
        return
    for device in devices:
        if not (device.usable and device.ethernet):
            continue
        chosen = [gid for number, gid, _ in device.gids if number == int(index)]
        if not chosen:
            # NCCL stops at it; of the others it is not known whether the job uses them.
            severity = "error" if variable == "NCCL_IB_GID_INDEX" else "warning"
            yield severity, "gids", "%s=%s, and %s has no such GID" % (variable, index, device.name)
        elif chosen[0].is_link_local:
            yield "warning", "gids", "%s=%s is a link-local GID of %s" % (variable, index, device.name)


def check_traffic_class(devices: list[Device], variable: str, setting: str) -> Iterator[Finding]:
    """Yield devices with a fixed traffic class, where a variable sets another one."""
    for device in devices:
        if device.usable and setting.isdigit() and device.traffic_class.isdigit() and setting != device.traffic_class:
            sentence = "%s=%s, and %s is set to class %s for all connections (tc/1/traffic_class)"
            yield "warning", "devices", sentence % (variable, setting, device.name, device.traffic_class)
            return


def are_halves(first: Device, second: Device) -> bool:
    """Return whether two devices are one port with two places on PCI, as in DGX Spark."""
    slots = [device.pci.rpartition(".") for device in (first, second)]
    return bool(first.chip) and first.chip == second.chip and slots[0][2] == slots[1][2] and slots[0] != slots[1]
