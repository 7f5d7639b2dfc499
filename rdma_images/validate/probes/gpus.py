"""The GPUs, and all-reduces over them: as NCCL chooses, as two nodes over the image's network, and without it."""

from __future__ import annotations

import ctypes
import importlib
import os
from typing import Any

from rdma_images.preflight.devices import read_devices
from rdma_images.validate.probes import all_reduce, elf, libraries, loader

SIZES = (1 << 22, 1 << 26, 1 << 30)  # bytes
# What makes an image insist on its network, taken away: NCCL may choose, and so may libfabric.
WITHOUT_REFUSAL = {"NCCL_NET": None, "FI_PROVIDER": None}
# Without an EFA device the plugin and libfabric work all the same over TCP. libfabric's own trace shows the memory
# that the plugin registers.
OVER_TCP = {"FI_PROVIDER": "tcp", "FI_HOOK": "trace", "FI_LOG_LEVEL": "trace", "FI_LOG_SUBSYS": "domain"}


def gpus() -> dict[str, Any] | None:
    """Return the GPUs, the image's network, and the all-reduces.

    None where nothing in the image can do an all-reduce.
    """
    program = all_reduce.program()
    if not program:
        return None
    names = _names_by_torch() if program == "torch" else _names_by_driver()
    requested = network()
    return {"count": len(names), "names": names, "network": requested, "runs": possible_runs(len(names), requested)}


def network() -> dict[str, Any]:
    """Return what brings NCCL to the network: a plugin's path, or "" for its own.

    `insists` is the network that the image's environment names; `device` is whether the machine has a device for it.
    """
    plugins = (loader.resolved(name)["file"] for name in libraries.candidate_plugin_names([], os.environ))
    plugin = next((path for path in plugins if path and _needs_libfabric(path)), "")
    drivers = [device.driver for device in read_devices()]
    has_device = "efa" in drivers if plugin else any(driver != "efa" for driver in drivers)
    return {"plugin": plugin, "insists": os.environ.get("NCCL_NET", ""), "device": has_device}


def possible_runs(count: int, requested: dict[str, Any]) -> dict[str, Any]:
    """Return the all-reduces that can be done: {} without a GPU.

    One GPU can stand for two nodes, with another NCCL_HOSTID for each. Where the image's network has no device,
    NCCL refuses what the image insists on ("refusal"); the others lift that.
    """
    refuses = requested["insists"] not in ("", "Socket") and not requested["device"]
    device_setting = {"NCCL_TESTS_DEVICE": "0"} if count == 1 else {}
    runs = {}
    if count > 1:
        runs["default"] = all_reduce.all_reduce(count, WITHOUT_REFUSAL if refuses else {}, SIZES)
    if count and (requested["device"] or requested["plugin"]):
        settings = {**device_setting, **({} if requested["device"] else OVER_TCP)}
        runs["two-nodes"] = all_reduce.all_reduce(2, settings, SIZES[:2], nodes=2)
    if count and refuses:
        runs["refusal"] = all_reduce.all_reduce(2, device_setting, SIZES[:1], nodes=2)
    return runs


def _needs_libfabric(path: str) -> bool:
    try:
        return "libfabric.so.1" in elf.library(path)["needed"]
    except (OSError, elf.NotElf):
        return False


def _names_by_torch() -> list[str]:
    torch = importlib.import_module("torch")
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def _names_by_driver() -> list[str]:
    """Return the names that CUDA's driver gives; [] where there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    names = []
    for number in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        if not cuda.cuDeviceGet(ctypes.byref(device), number) and not cuda.cuDeviceGetName(name, 256, device):
            names.append(name.value.decode("utf-8", "replace"))
    return names
