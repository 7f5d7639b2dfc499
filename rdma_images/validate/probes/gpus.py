"""The GPUs, and all-reduces over them: as NCCL chooses, as two nodes over the image's network, and without it.

Each is the preflight's, see preflight/all_reduce.py: it needs NCCL and the driver, and no framework.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Mapping, Optional

from rdma_images.preflight.all_reduce import MESSAGE_BYTES, Ranks
from rdma_images.preflight.devices import read_devices
from rdma_images.preflight.system import find_nccl
from rdma_images.validate.probes import elf, libraries, loader

ALL_REDUCE_SECONDS = 120  # seconds for one all-reduce, start of the processes included
MAX_LOG_CHARACTERS = 400000  # characters
# Without the required network: NCCL may choose, and so may libfabric.
WITHOUT_REFUSAL = {"NCCL_NET": None, "FI_PROVIDER": None}
# Without an EFA device the plugin and libfabric work all the same over TCP. libfabric's own trace shows the memory
# that the plugin registers.
OVER_TCP = {"FI_PROVIDER": "tcp", "FI_HOOK": "trace", "FI_LOG_LEVEL": "trace", "FI_LOG_SUBSYS": "domain"}

Settings = Mapping[str, Optional[str]]


def measure_gpus() -> dict[str, Any] | None:
    """Return the GPUs, the image's network, and the all-reduces; None where there is no NCCL."""
    nccl = find_nccl()
    if not nccl:
        return None
    names = gpu_names()
    requested = measure_gpu_network()
    runs = possible_runs(nccl.path, len(names), requested)
    return {"count": len(names), "names": names, "network": requested, "runs": runs}


def measure_gpu_network() -> dict[str, Any]:
    """Return what brings NCCL to the network: a plugin's path, or "" for its own.

    `required_network` is NCCL_NET of the environment; `device` is whether the machine has a device for it.
    """
    plugins = (loader.resolve_name(name)["file"] for name in libraries.candidate_plugin_names([], os.environ))
    plugin = next((path for path in plugins if path and _needs_libfabric(path)), "")
    drivers = [device.driver for device in read_devices()]
    has_device = "efa" in drivers if plugin else any(driver != "efa" for driver in drivers)
    return {"plugin": plugin, "required_network": os.environ.get("NCCL_NET", ""), "device": has_device}


def possible_runs(nccl_path: str, count: int, requested: dict[str, Any]) -> dict[str, Any]:
    """Return the all-reduces that can be done: {} without a GPU.

    One GPU can stand for two nodes. Where the required network has no device, NCCL ends with an error
    ("refusal"); the others lift that.
    """
    refuses = requested["required_network"] not in ("", "Socket") and not requested["device"]
    runs = {}
    if count > 1:
        runs["default"] = all_reduce(nccl_path, WITHOUT_REFUSAL if refuses else {}, [{}], count)
    if count and (requested["device"] or requested["plugin"]):
        runs["two-nodes"] = all_reduce(nccl_path, {} if requested["device"] else OVER_TCP, two_nodes(count))
    if count and refuses:
        runs["refusal"] = all_reduce(nccl_path, {}, two_nodes(count))
    return runs


def two_nodes(count: int) -> list[dict[str, str]]:
    """Return the variables by which the first two of `count` GPUs, or the only one twice, are nodes of their own."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = visible if visible != [""] else [str(number) for number in range(count)]
    return [
        {"NCCL_HOSTID": "node%d" % number, "CUDA_VISIBLE_DEVICES": names[number % count].strip()} for number in range(2)
    ]


def all_reduce(nccl_path: str, settings: Settings, nodes: Sequence[Mapping[str, str]], gpus: int = 1) -> dict[str, Any]:
    """Run an all-reduce over nodes with so many `gpus` each.

    Args:
        nccl_path: The NCCL to start.
        settings: They go over the image's environment; None takes a variable away.
        nodes: The variables of each node.
        gpus: How many GPUs a node has.

    Returns:
        The variables, the bytes that were summed up, the answer of each process, and their logs.
    """
    merged = {**os.environ, **settings}
    environment = {name: value for name, value in merged.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        parts = [
            stack.enter_context(Ranks((len(nodes), number), gpus, nccl_path, folder, {**environment, **variables}))
            for number, variables in enumerate(nodes)
        ]
        unique_id = parts[0].make_id()
        with ThreadPoolExecutor(len(parts)) as pool:
            answers = list(pool.map(lambda ranks: ranks.run(unique_id, ALL_REDUCE_SECONDS), parts))
        lines = [
            line
            for ranks in parts
            for rank in ranks.processes
            for kind in ("nccl", "errors")
            for line in ranks.lines(kind, rank)
        ]
    hosts = {"NCCL_HOSTID": ",".join(node["NCCL_HOSTID"] for node in nodes)} if len(nodes) > 1 else {}
    return {
        "settings": {**settings, **hosts},
        "bytes": MESSAGE_BYTES,
        "answers": [answer for part in answers for answer in part.values()],
        "log": "\n".join(lines)[:MAX_LOG_CHARACTERS],
    }


def _needs_libfabric(path: str) -> bool:
    try:
        return "libfabric.so.1" in elf.library(path)["needed"]
    except (OSError, elf.NotElf):
        return False


def gpu_names() -> list[str]:
    """Return the names of the GPUs that CUDA's driver shows."""
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
