"""Check this node and its neighbours, in seconds, before a job's command: has NCCL's network what it needs?

Prints a line for each finding, which `rdma_images.jobs.run.watch` reads: its severity, what it is about, a sentence.
Ends with 1 after an error. docs/guides/jobs.md has a table of them; `check` and `local_findings`, at the end, call the
checks, each on the kernel's files below a root, so that tests can write them.
"""

from __future__ import annotations

import argparse
import array
import ctypes
import errno
import fcntl
import glob
import importlib.metadata
import ipaddress
import itertools
import json
import os
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Finding = tuple[str, str, str]  # severity, name, sentence
    Gid = tuple[int, ipaddress.IPv6Address, str]  # index, address, type
    Interface = tuple[str, str, bool]  # name, IPv4 address, whether it is running: up, and with a link
    Facts = dict[str, Any]
    Rail = tuple[str, str, str]  # RoCE device, its interface, its IPv4 address
    Version = tuple[int, int, int]

MARK = "rdma-images-node-check"
PORT = 29499  # where the nodes meet at the first one, beside torchrun's
MEETING_SECONDS = 60.0  # seconds for all nodes to come there
NOTE_SECONDS = 10.0  # seconds after which the nodes that are waited for are named
LEAVING_SECONDS = 10.0  # seconds for the neighbour to come after that
CONNECT_SECONDS = 5.0  # seconds for a connection to the neighbour
LARGE_MESSAGE = 1 << 18  # bytes: more than the packets of any MTU
OUTSIDE = ("8.8.8.8", 80)  # whose route vLLM, SGLang and Ray ask the kernel for; nothing is sent there
RAILS_SECONDS = 2.0  # seconds for all connections between adapters
CAP_IPC_LOCK = 14  # bit of the capability that lifts the limit of locked memory
MIN_SHM_BYTES = 1 << 30  # bytes; Docker gives 64 MiB
MIN_DISK_BYTES = 1 << 30  # bytes free where jobs keep caches and temporary files
MIN_MEMORY_BYTES = 4 << 30  # bytes for each GPU: a rank of torch alone takes about two
# Open files of a rank for each other rank. Two H200 as two nodes, NCCL 2.28.9 over sockets: 20 after an all-reduce, 4
# more after an all-to-all, 14 for a second group. NCCL lifts the limit of the first rank alone (src/bootstrap.cc).
FILES_FOR_RANK = 16
MAX_CLOCK_SECONDS = 30.0  # seconds between clocks, after which tickets and certificates are refused
NAME_SECONDS = 3.0  # seconds for a name to be resolved
MAX_PROCESSES = 400  # processes whose mappings are read
XID_SECONDS = 24 * 3600.0  # seconds for which an error of a GPU counts
# GPUs that need a reset or a repair, as NVIDIA's catalogue of Xid errors has them: memory, NVLink, GSP, off the bus.
BAD_XIDS = {"48", "63", "64", "74", "79", "92", "94", "95", "119", "120", "140", "143"}
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
FOLDERS = ("TMPDIR", "HF_HOME", "XDG_CACHE_HOME", "TORCH_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
# Settings that decide how nodes reach each other, and should be the same on all of them.
SHARED_SETTINGS = re.compile(r"(NCCL|FI|OFI_NCCL|UCX|UCCL|NVSHMEM|GLOO)_(?!DEBUG|HOSTID|LOG_)\w+")
ACS_CAPABILITY, ATS_CAPABILITY, PCI_BRIDGE = 0x000D, 0x000F, 0x0604
ACS_REDIRECTS = 0x0004 | 0x0008  # of requests and of completions, in the ACS control register
ATS_ENABLED = 0x8000  # in the ATS control register
PROXY_PORTS = {"3A99", "3A9E"}  # 15001 and 15006, where Istio's proxy takes what its pod sends and gets
TCP_LISTEN = "0A"  # in /proc/net/tcp
IFF_RUNNING = 0x40  # include/uapi/linux/if.h
# Interfaces of containers and virtual machines by the names that Docker, libvirt, CNI, Podman and LXC give them.
NODE_LOCAL_INTERFACE = re.compile(
    r"lo|docker|virbr|veth|cni|pod-id-link|flannel|cali|podman|lxcbr|lxdbr|nerdctl|br-[\da-f]{12}$"
)
VPN_INTERFACE = re.compile(r"tailscale|wg\d|tun\d|zt\w{8}")  # Tailscale, WireGuard, OpenVPN, ZeroTier


def read_file(path: str) -> str:
    """Return the content of one of the kernel's files; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def first_line(path: str) -> str:
    """Return the first line of one of the kernel's files; "" where it cannot be read."""
    return read_file(path).partition("\n")[0].strip()


def open_errno(path: str) -> int:
    """Return the errno of opening a device's file; 0 where it opens."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def explain_open_error(error_number: int) -> str:
    """Return the words of an errno of opening a device's file, and what refuses it."""
    causes = {
        errno.EACCES: "user %d has no right to its file: rdma-core's udev rules give it mode 0666" % os.getuid(),
        errno.EPERM: "the container's cgroup does not let the device in: ask for it, as with --device",
    }
    return "%s%s" % (os.strerror(error_number), "; " + causes[error_number] if error_number in causes else "")


class Device:
    """An RDMA device of /sys/class/infiniband, and whether this container may use it."""

    def __init__(self, root: str, path: str) -> None:
        self.name = os.path.basename(path)
        self.driver = os.path.basename(os.path.realpath(path + "/device/driver"))
        self.peer = first_line(path + "/device/p2p")  # of EFA: whose GPUs it reaches, "NA" for none's
        self.ports = [os.path.basename(entry) for entry in glob.glob(path + "/ports/*")]
        self.state = first_line(path + "/ports/1/state")
        self.rate = first_line(path + "/ports/1/rate")
        self.model = first_line(path + "/device/vendor") + first_line(path + "/device/device")
        self.firmware = first_line(path + "/fw_ver")
        self.ethernet = first_line(path + "/ports/1/link_layer") == "Ethernet"
        self.gids = list(gid_table(path + "/ports/1"))
        verbs = [os.path.basename(entry) for entry in glob.glob(path + "/device/infiniband_verbs/uverbs*")]
        self.node = root + "/dev/infiniband/" + verbs[0] if verbs else ""
        interfaces = sorted({first_line(entry) for entry in glob.glob(path + "/ports/1/gid_attrs/ndevs/*")} - {""})
        self.interface = interfaces[0] if interfaces else ""
        self.mtu = first_line(root + "/sys/class/net/" + self.interface + "/mtu") if self.interface else ""
        self.open_errno = open_errno(self.node) if self.node else errno.ENOENT
        self.usable = not self.open_errno
        self.chip = first_line(path + "/sys_image_guid")
        self.pci = os.path.basename(os.path.realpath(path + "/device"))
        self.traffic_class = first_line(path + "/tc/1/traffic_class").partition("=")[2].strip()
        self.path = path


def gid_table(port: str) -> Iterator[Gid]:
    """Yield index, address and type of each GID of a port that is set."""
    for index in range(256):
        text = first_line("%s/gids/%d" % (port, index))
        if not text:
            return
        address = ipaddress.IPv6Address(text)
        if int(address):
            yield index, address, first_line("%s/gid_attrs/types/%d" % (port, index))


def read_devices(root: str) -> list[Device]:
    """Return the node's RDMA devices by name."""
    return [Device(root, path) for path in sorted(glob.glob(root + "/sys/class/infiniband/*"))]


def fabric_devices(devices: list[Device], fabric: str) -> list[Device]:
    """Return the devices that carry `fabric`: EFA's, eRDMA's, or those of neither."""
    if fabric in ("efa", "erdma"):
        return [device for device in devices if device.driver == fabric]
    return [device for device in devices if device.driver not in ("efa", "erdma")]


def check_devices(devices: list[Device], fabric: str, count: int, nodes: int) -> Iterator[Finding]:
    """Yield what is wrong with the devices of the fabric; a job of one node that names none needs none."""
    carriers = fabric_devices(devices, fabric)
    usable = [device for device in carriers if device.usable]
    if nodes < 2 and not (fabric or count or usable):
        return
    severity = "error" if fabric or count else "warning"
    unopenable = [device for device in carriers if device.open_errno not in (0, errno.ENOENT)]
    reason = (
        "%s cannot be opened: %s" % (unopenable[0].name, explain_open_error(unopenable[0].open_errno))
        if unopenable
        else ""
    )
    if not carriers:
        yield (
            severity,
            "devices",
            "the kernel has no %s device: its driver is not loaded, or the instance has none" % (fabric or "RDMA"),
        )
    elif not usable:
        names = ", ".join(device.name for device in carriers[:4])
        absent = "%s are there, and /dev/infiniband has none of them here: ask for the devices" % names
        yield severity, "devices", reason or absent
    elif count and len(usable) < count - 1:
        counted = "%d of %d adapters can be used here" % (len(usable), count)
        yield "error", "devices", "%s: %s" % (counted, reason) if reason else counted
    down = [device.name for device in usable if device.state and "ACTIVE" not in device.state]
    if down:
        yield "error", "ports", "the port is not active: %s" % ", ".join(down)
    others = [device.name for device in devices if device.usable and device not in carriers]
    if fabric == "efa" and usable and others:
        yield (
            "warning",
            "devices",
            "%s is in /dev/infiniband, too, and can hide EFA: by a hostPath of /dev/infiniband, which is to be left "
            "out, or an EFA device plugin before 0.5.10, which counts NVLink's controllers as EFA" % others[0],
        )


def check_rates(devices: list[Device]) -> Iterator[Finding]:
    """Yield adapters whose link is slower than that of others of the same model."""
    by_model: dict[str, list[tuple[float, Device]]] = {}
    for device in devices:
        if device.usable and device.model and re.match(r"[\d.]+ Gb/sec", device.rate):
            by_model.setdefault(device.model, []).append((float(device.rate.split()[0]), device))
    for rows in by_model.values():
        best = max(rate for rate, _ in rows)
        slow = [device.name for rate, device in rows if rate < best]
        if slow and len(slow) * 2 <= len(rows):
            yield (
                "warning",
                "rates",
                "the link of %s is slower than that of the others, %d Gb/s" % (", ".join(slow[:4]), best),
            )


def check_link_layers(devices: list[Device]) -> Iterator[Finding]:
    """Yield ports of Ethernet that NCCL takes beside ports of InfiniBand, as it does where nothing names them.

    A port of the one reaches none of the other (issue 302 of NVIDIA/nccl).
    """
    selected = selected_devices(devices, "NCCL_IB_HCA", os.environ.get("NCCL_IB_HCA", ""))
    active = [device for device in selected if device.usable and "ACTIVE" in device.state]
    ethernet = [device.name for device in active if device.ethernet]
    infiniband = [device.name for device in active if not device.ethernet]
    if ethernet and infiniband:
        yield (
            "warning",
            "devices",
            "NCCL takes %s of Ethernet beside %s of InfiniBand, which do not reach each other: set NCCL_IB_HCA=%s"
            % (", ".join(ethernet[:4]), ", ".join(infiniband[:4]), ",".join(infiniband)),
        )


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
    """Yield names in the value `setting` of a variable that no adapter here has, and a half of a port."""
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
    taken = [device for fitting in names.values() for device in fitting]
    for device in devices if variable in TAKES_BEGINNINGS else ():
        half = next((other for other in taken if device not in taken and are_halves(other, device)), None)
        if half and device.usable and "ACTIVE" in device.state:
            yield (
                "warning",
                "devices",
                "%s and %s are halves of one port, each with a part of its bandwidth, and %s names one alone"
                % (half.name, device.name, variable),
            )


def check_settings(root: str, devices: list[Device], carriers: list[Device]) -> Iterator[Finding]:
    """Yield what the libraries' variables say of devices, and of GIDs and classes of the carriers, that is not so."""
    for device_variable, gid_variable, class_variable in DEVICE_SETTINGS:
        setting = os.environ.get(device_variable, "")
        yield from check_names_of_devices(root, devices, device_variable, setting)
        selected = selected_devices(carriers, device_variable, setting)
        yield from check_gid_index(selected, gid_variable, os.environ.get(gid_variable, ""))
        yield from check_traffic_class(selected, class_variable, os.environ.get(class_variable, ""))


def check_prefix(devices: list[Device]) -> Iterator[Finding]:
    """Yield a finding if NVSHMEM skips every adapter by its name (src/modules/transport/ibgda/ibgda.cpp)."""
    prefix = os.environ.get("NVSHMEM_HCA_PREFIX", "mlx5")
    names = [device.name for device in devices if device.usable and device.driver.startswith("mlx5")]
    if names and any(name.startswith("NVSHMEM_") for name in os.environ) and not any(prefix in name for name in names):
        yield (
            "warning",
            "devices",
            "NVSHMEM's IBGDA takes adapters with %s in their names, and %s has it not: set NVSHMEM_HCA_PREFIX"
            % (prefix, names[0]),
        )


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
    """Yield devices whose driver sets a traffic class for all connections, where a variable sets another one."""
    for device in devices:
        if device.usable and setting.isdigit() and device.traffic_class.isdigit() and setting != device.traffic_class:
            yield (
                "warning",
                "devices",
                "%s=%s, and %s is set to class %s for all connections (tc/1/traffic_class)"
                % (variable, setting, device.name, device.traffic_class),
            )
            return


def check_pci_links(devices: list[Device]) -> Iterator[Finding]:
    """Yield adapters whose PCI Express link has fewer lanes or a lower speed than both of its ends can have."""
    for device in devices:
        slot = os.path.dirname(os.path.realpath(device.path + "/device"))
        for name, unit in (("width", "lanes"), ("speed", "GT/s")):
            texts = [
                first_line(folder + "/%s_link_%s" % (kind, name))
                for kind, folder in (
                    ("current", device.path + "/device"),
                    ("max", device.path + "/device"),
                    ("max", slot),
                )
            ]
            numbers = [re.match(r"[\d.]+", text) for text in texts]
            values = [float(number.group()) for number in numbers if number]
            if device.usable and len(values) == len(texts) and 0 < values[0] < min(values[1:]):
                yield (
                    "warning",
                    "rates",
                    "the PCI Express link of %s has %g %s, and the adapter and its slot can have %g"
                    % (device.name, values[0], unit, min(values[1:])),
                )


def are_halves(first: Device, second: Device) -> bool:
    """Return whether two devices are one port of a chip that has two places on PCI, as DGX Spark's ConnectX-7."""
    slots = [device.pci.rpartition(".") for device in (first, second)]
    return bool(first.chip) and first.chip == second.chip and slots[0][2] == slots[1][2] and slots[0] != slots[1]


def nccl_version() -> Version | None:
    """Return the version of the NCCL that `import torch` loads, or the loader's; None where there is none."""
    for path in [*(folder + "/nvidia/nccl/lib/libnccl.so.2" for folder in sys.path), "libnccl.so.2"]:
        number = ctypes.c_int()
        try:
            ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
        except (OSError, AttributeError):
            continue
        major, minor_and_patch = divmod(number.value, 10000 if number.value >= 10000 else 1000)
        return (major, minor_and_patch // 100, minor_and_patch % 100)
    return None


def torch_version() -> str:
    """Return the version of the torch that this Python imports, without importing it; "" where there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def check_gids(devices: list[Device], index: str, nccl: Version | None = None) -> Iterator[Finding]:
    """Yield RoCE devices without a GID that is routed, or of which an old NCCL takes another one.

    `index` is NCCL_IB_GID_INDEX as it is set.
    """
    takes_first_gid = nccl is not None and nccl < (2, 21, 0) and not index  # src/transport/net_ib.cc
    for device in devices:
        if not (device.usable and device.ethernet):
            continue
        if not any("v2" in kind and not gid.is_link_local for _, gid, kind in device.gids):
            yield (
                "error",
                "gids",
                "%s has no GID of RoCE v2 but link-local ones: its interface has no address" % device.name,
            )
        routed = [number for number, gid, kind in device.gids if "v2" in kind and gid.ipv4_mapped]
        if takes_first_gid and routed and 0 not in routed:
            yield (
                "warning",
                "gids",
                "NCCL before 2.21 takes GID 0 of %s, which is not routed: NCCL_IB_GID_INDEX=%d"
                % (device.name, routed[0]),
            )


def check_memory(root: str, devices: list[Device]) -> Iterator[Finding]:
    """Yield limits of locked memory, and a small /dev/shm."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    status = re.search(r"^CapEff:\s*(\w+)", read_file(root + "/proc/self/status"), re.MULTILINE)
    may_lock = status is not None and int(status.group(1), 16) >> CAP_IPC_LOCK & 1
    if devices and limit != resource.RLIM_INFINITY and not may_lock:
        yield (
            "error",
            "memlock",
            "locked memory is limited to %d KiB: --ulimit memlock=-1:-1, or IPC_LOCK" % (limit // 1024),
        )
    space = disk_space(root + "/dev/shm")
    if space is None:
        return
    size, free = space
    stale = stale_files(root) if free < MIN_SHM_BYTES else []
    if size < MIN_SHM_BYTES:
        yield "warning", "shm", "/dev/shm has %d MiB: NCCL and data loaders need more" % (size >> 20)
    elif free < MIN_SHM_BYTES:
        advice = ": %d files of ended processes fill it, as %s" % (len(stale), stale[0]) if stale else ""
        yield "warning", "shm", "%d of %d MiB are free in /dev/shm%s" % (free >> 20, size >> 20, advice)


def disk_space(folder: str) -> tuple[int, int] | None:
    """Return the size of the file system of a folder and what is free there, in bytes; None without the folder."""
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
    """Yield a small limit of memory of the container, and of open files."""
    texts = [first_line(root + "/sys/fs/cgroup" + name) for name in ("/memory.max", "/memory/memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text.isdigit()]
    if limits and gpus and limits[0] < gpus * MIN_MEMORY_BYTES:
        yield "warning", "memory", "the container may use %d MiB, for %d GPUs" % (limits[0] >> 20, gpus)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = FILES_FOR_RANK * max(1, gpus) * nodes + 512
    if limit != resource.RLIM_INFINITY and limit < needed:
        yield (
            "warning",
            "files",
            "a process may open %d files: %d ranks need about %d: ulimit -n, or --ulimit nofile of docker"
            % (limit, gpus * nodes, needed),
        )


def check_folders(root: str) -> Iterator[Finding]:
    """Yield folders in which jobs keep caches and temporary files, and that are full or cannot be written."""
    folders = {os.environ.get("TMPDIR") or "/tmp": "TMPDIR"}
    folders.update((os.environ[name], name) for name in FOLDERS if os.environ.get(name))
    for folder, name in folders.items():
        space = disk_space(root + folder)
        if space is None:
            continue
        if not os.access(root + folder, os.W_OK):
            yield "warning", "disk", "%s, %s, cannot be written by this user" % (folder, name)
        elif space[1] < MIN_DISK_BYTES:
            yield "warning", "disk", "%d MiB are free in %s, %s" % (space[1] >> 20, folder, name)


def check_huge_pages(root: str, fabric: str) -> Iterator[Finding]:
    """Yield a finding if EFA's provider has no huge pages."""
    free = re.search(r"^HugePages_Free:\s*(\d+)", read_file(root + "/proc/meminfo"), re.MULTILINE)
    if fabric == "efa" and free and not int(free.group(1)):
        yield "warning", "hugepages", "no huge page is free: sysctl vm.nr_hugepages before the job"


def check_gpus(root: str, count: int, nodes: int) -> Iterator[Finding]:
    """Yield GPUs that are missing or broken, and NVLinks that are down."""
    gpus = glob.glob(root + "/dev/nvidia[0-9]*")
    if len(gpus) < count:
        yield "error", "gpus", "%d of %d GPUs are in the container" % (len(gpus), count)
    elif gpus:
        yield from check_visible_gpus(os.environ, count)
    yield from check_device_files(gpus, count)
    if not gpus or root:
        return
    answer = run_program(
        "nvidia-smi", "--query-gpu=index,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader"
    )
    if answer is None:
        return
    code, text = answer
    shown = [row for row in text.splitlines() if re.match(r"\d+,", row)]
    if not code and len(shown) < len(gpus):
        yield "error", "gpus", "nvidia-smi shows %d of the %d GPUs that are here" % (len(shown), len(gpus))
    if code:
        yield "error", "gpus", "nvidia-smi: %s" % (text.strip().splitlines() or ["exit code %d" % code])[-1]
    bad = [row.split(",")[0] for row in text.splitlines() if re.fullmatch(r"\d+, *[1-9]\d*", row.strip())]
    if not code and bad:
        yield "warning", "gpus", "uncorrected memory errors on GPU %s" % ", ".join(bad)
    details = run_program("nvidia-smi", "-q")
    if details and not details[0]:
        yield from gpu_states(details[1])
        yield from check_imex(root, details[1], nodes)
    links = run_program("nvidia-smi", "nvlink", "--status")
    if links and "inactive" in links[1].lower():
        yield "warning", "nvlink", "an NVLink is inactive: nvidia-smi nvlink --status"


def check_visible_gpus(variables: Mapping[str, str], count: int) -> Iterator[Finding]:
    """Yield GPUs that CUDA_VISIBLE_DEVICES takes from this process, as Slurm does from each task."""
    setting = variables.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return
    names = [name.strip() for name in setting.split(",")]
    visible = len(list(itertools.takewhile(lambda name: re.match(r"\d|GPU-|MIG-", name), names)))  # as CUDA reads it
    is_for_task = any(variables.get(name) for name in ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"))
    reason = ", since Slurm gives each task its own (--gpus-per-task, --ntasks-per-gpu)" if is_for_task else ""
    if visible < count:
        yield "error", "gpus", "CUDA_VISIBLE_DEVICES=%s leaves %d of %d GPUs%s" % (setting, visible, count, reason)
    elif is_for_task and visible == 1:
        sentence = "each of Slurm's tasks sees one GPU: a program that starts its ranks itself needs one task on a node"
        yield "note", "gpus", sentence + " that sees all (--ntasks-per-node=1 --gpus-per-node)"


def check_device_files(gpus: list[str], count: int) -> Iterator[Finding]:
    """Yield GPUs whose files are here, and which a cgroup does not let this container open."""
    # Of other errors the GPU itself is broken, which others report.
    unopenable = [path for path in sorted(gpus) if open_errno(path) in (errno.EPERM, errno.EACCES)]
    if unopenable and len(gpus) - len(unopenable) < max(1, count):  # of other jobs' GPUs Slurm lets none be opened
        yield (
            "error",
            "gpus",
            "%s may not be opened (%s): the container's cgroup has lost its devices, as after "
            "`systemctl daemon-reload`: start it again, with CDI" % (", ".join(unopenable[:8]), os.strerror(1)),
        )


def gpu_states(text: str) -> Iterator[Finding]:
    """Yield GPUs that ranks cannot use as they are, by what `nvidia-smi -q` prints."""
    sentences: dict[tuple[str, str], list[str]] = {}
    for number, section in enumerate(re.split(r"^GPU [\dA-F:.]+$", text, flags=re.MULTILINE)[1:]):
        states = (
            (
                "error",
                "the fabric of NVSwitch is not ready, see nvidia-fabricmanager",
                r"Fabric\s+State\s+: (?!N/A|Comp)\w",
            ),
            (
                "error",
                "NVSwitch's fabric has taken it in with an error, see Fabric in nvidia-smi -q",
                r"Fabric\s+State\s+: Completed\s+Status\s+: (?!N/A|Success)\w",
            ),
            ("error", "no process may use it, by its compute mode", r"Compute Mode\s+: Prohibited"),
            ("warning", "MIG is on, and NCCL refuses two instances of one GPU", r"MIG Mode\s+Current\s+: Enabled"),
            ("warning", "rows of its memory wait for a reset", r"Remapped Rows(?:\n.*){0,3}\n\s+Pending\s+: Yes"),
            ("warning", "rows of its memory could not be remapped", r"Remapping Failure Occurred\s+: Yes"),
            ("warning", "pages of its memory wait for a reset", r"Retired Pages(?:\n.*){0,4}Pending[\w ]*: Yes"),
            ("warning", "another process uses its memory", r"Process ID\s+: \d+"),
        )
        for severity, sentence, pattern in states:
            if re.search(pattern, section):
                sentences.setdefault((severity, sentence), []).append(str(number))
    for (severity, sentence), numbers in sentences.items():
        yield severity, "gpus", "GPU %s: %s" % (", ".join(numbers), sentence)


def check_imex(root: str, states: str, nodes: int) -> Iterator[Finding]:
    """Yield a finding if NVLink leads to other nodes, by what `nvidia-smi -q` prints, and no IMEX channel is here."""
    clusters = set(re.findall(r"ClusterUUID\s+: ([\da-f-]+)", states)) - {"00000000-0000-0000-0000-000000000000"}
    is_ignored = os.environ.get("NCCL_MNNVL_ENABLE") == "0"
    if nodes > 1 and clusters and not is_ignored and not glob.glob(root + "/dev/nvidia-caps-imex-channels/channel*"):
        yield (
            "warning",
            "imex",
            "NVLink leads to other nodes, and /dev/nvidia-caps-imex-channels has no channel here: NCCL ends with an "
            "error where two nodes are of one NVLink domain: start nvidia-imex and give the job a channel",
        )


CUDA_STATES = {
    34: "the CUDA toolkit's stub, which LD_LIBRARY_PATH or the image puts before the driver's own libcuda.so.1",
    802: "as when nvidia-fabricmanager does not run, or is of another version than the driver",
    803: "as when the image's CUDA compatibility libraries do not fit the node's driver",
    999: "as when nvidia-uvm is not loaded, or the driver was updated without a restart",
}
CUDA_PROGRAM = """
import ctypes
text, cuda = ctypes.c_char_p(), ctypes.CDLL("libcuda.so.1")
code = cuda.cuInit(0)
cuda.cuGetErrorString(code, ctypes.byref(text))
library = next((line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line), "")
print(code, (text.value or b"").decode() or library)
"""


def check_cuda(root: str, gpus: list[str]) -> Iterator[Finding]:
    """Yield a finding if CUDA does not start here, in a process of its own."""
    answer = (
        run_program(sys.executable, "-c", CUDA_PROGRAM) if gpus and not root and has_library("libcuda.so.1") else None
    )
    match = re.match(r"(\d+) (.*)", answer[1]) if answer and not answer[0] else None
    if match and match.group(1) not in ("0", "100"):  # that no device is left to this process, others report
        code = int(match.group(1))
        cause = ": " + CUDA_STATES[code] if code in CUDA_STATES else ""
        yield "error", "cuda", "CUDA does not start: error %d, %s%s" % (code, match.group(2), cause)


def check_fabric_manager(root: str) -> Iterator[Finding]:
    """Yield a finding if systemd says that the service of NVSwitch, which is here, does not run."""
    if not glob.glob(root + "/dev/nvidia-nvswitch[0-9]*"):
        return
    answer = run_program("systemctl", "is-active", "nvidia-fabricmanager")
    state = answer[1].strip() if answer else ""
    if state in ("inactive", "failed"):
        yield "warning", "gpus", "nvidia-fabricmanager is %s, and NVSwitch needs it: systemctl status" % state


def check_kernel_log(root: str) -> Iterator[Finding]:
    """Yield GPUs of which the kernel's log has an error that needs a reset or a repair."""
    try:
        descriptor = os.open(root + "/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # a container has none, and a user may not read it
        return
    errors: dict[tuple[str, str], None] = {}
    newest = float((first_line(root + "/proc/uptime").split() or ["0"])[0])
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while True:
            try:
                record = file.read(1 << 16)
            except OSError:  # no more, or one that was overwritten
                break
            if not record:
                break
            for match in re.finditer(rb"^\d+,\d+,(\d+),[^;]*;NVRM: Xid \(PCI:([\w:.]+)\): (\d+)", record, re.MULTILINE):
                moment, address, number = (group.decode() for group in match.groups())
                if number in BAD_XIDS and newest - int(moment) / 1e6 < XID_SECONDS:
                    errors[address, number] = None
    for address, number in list(errors)[:4]:
        yield "warning", "xid", "the kernel's log has Xid %s of GPU %s within a day" % (number, address)


def has_open_driver(root: str) -> bool:
    """Return whether NVIDIA's open kernel modules are loaded, which give GPUs' memory to other devices as dma-buf."""
    return "Open Kernel Module" in first_line(root + "/proc/driver/nvidia/version")


def check_gpudirect(
    root: str, devices: list[Device], gpus: list[str], nccl: Version | None = None
) -> Iterator[Finding]:
    """Yield why GPUs and verbs devices cannot share memory."""
    if not (gpus and any(device.usable for device in devices)):
        return
    peers = root + "/sys/kernel/mm/memory_peers"
    loaded = os.path.isdir(root + "/sys/module/nvidia_peermem") or os.path.isdir(root + "/sys/module/nv_peer_mem")
    if loaded and os.path.isdir(peers) and not glob.glob(peers + "/nv*"):
        yield "warning", "peermem", "nvidia_peermem is loaded and not registered: load it after the RDMA drivers"
    has_dma_buf = has_open_driver(root)
    if not (loaded or has_dma_buf):
        yield "warning", "peermem", "neither nvidia_peermem nor a driver with dma-buf: GPUDirect RDMA is off"
    # src/transport/net_ib.cc up to 2.22.3 looks for what MLNX_OFED's peer memory shows, and not for the module.
    if loaded and not has_dma_buf and nccl and nccl < (2, 23, 4) and not glob.glob(peers + "/nv_mem*/version"):
        yield (
            "warning",
            "peermem",
            "NCCL before 2.23.4 does not see nvidia_peermem where %s/nv_mem is not there: GPUDirect RDMA is off"
            % peers,
        )
    if redirecting := acs_bridges(root):
        yield (
            "warning",
            "acs",
            "PCI ACS redirects on %d bridges, as %s: GPUDirect RDMA fails or is slow"
            % (len(redirecting), redirecting[0]),
        )
    # docs.nvidia.com/cuda/gpudirect-rdma, "IOMMUs": addresses have to be translated 1:1, or not at all. With ATS an
    # adapter sends translated ones itself. Arm's SMMU is left out: GPUDirect works with it on some clusters.
    translated = [
        device.name
        for device in devices
        if device.usable
        and first_line(device.path + "/device/iommu_group/type").startswith("DMA")
        and not control_register(device.path + "/device", ATS_CAPABILITY) & ATS_ENABLED
    ]
    if translated and os.uname().machine == "x86_64":
        yield (
            "warning",
            "iommu",
            "an IOMMU translates what %s sends, as to GPUs: GPUDirect RDMA fails or is slow: boot with iommu=pt"
            % ", ".join(translated[:4]),
        )


def has_library(name: str) -> bool:
    """Return whether the loader finds a library here."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def check_gdrcopy(root: str, gpus: list[str], has_gdrcopy: bool) -> Iterator[Finding]:
    """Yield a finding if the image's GDRCopy has no driver to talk to."""
    if gpus and has_gdrcopy and not os.path.exists(root + "/dev/gdrdrv"):
        yield (
            "warning",
            "gdrcopy",
            "the image has GDRCopy, and /dev/gdrdrv is not here: load gdrdrv on the node, and give the pod the device",
        )


def check_efa_peer(root: str, devices: list[Device], gpus: list[str]) -> Iterator[Finding]:
    """Yield a finding if EFA's driver does not reach the GPUs' memory."""
    efa = [device for device in fabric_devices(devices, "efa") if device.usable and device.peer]
    if gpus and efa and not has_open_driver(root) and all(device.peer == "NA" for device in efa):
        yield (
            "warning",
            "peer",
            "EFA's driver does not reach the GPUs' memory (p2p of %s is NA): take NVIDIA's open kernel modules"
            % efa[0].name,
        )


def acs_bridges(root: str) -> list[str]:
    """Return the PCI bridges that send peers' requests through the root; none where their registers cannot be read."""
    return [
        os.path.basename(path)
        for path in sorted(glob.glob(root + "/sys/bus/pci/devices/*"))
        if int(first_line(path + "/class") or "0", 16) >> 8 == PCI_BRIDGE
        and control_register(path, ACS_CAPABILITY) & ACS_REDIRECTS
    ]


def control_register(path: str, capability: int) -> int:
    """Return the control register of ACS or ATS of a PCI device; 0 where it has none, or it cannot be read."""
    try:
        with open(path + "/config", "rb") as file:
            space = file.read(4096)
    except OSError:
        return 0
    offset = 256
    while 256 <= offset <= len(space) - 8:
        head = struct.unpack_from("<I", space, offset)[0]
        if head & 0xFFFF == capability:
            return int(struct.unpack_from("<H", space, offset + 6)[0])
        following = head >> 20
        offset = following if following > offset else 0
    return 0


def read_interfaces() -> list[Interface]:
    """Return the interfaces that have an IPv4 address, in the kernel's order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        buffer = array.array("B", bytes(16384))
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(probe.fileno(), 0x8912, request))[0]  # SIOCGIFCONF
        interfaces = []
        for row in [buffer.tobytes()[n : n + 40] for n in range(0, used, 40)]:
            flags = fcntl.ioctl(probe.fileno(), 0x8913, row)[16]  # SIOCGIFFLAGS
            name = row[:16].split(b"\0")[0].decode()
            interfaces.append((name, socket.inet_ntoa(row[20:24]), bool(flags & IFF_RUNNING)))
    return interfaces


def socket_interfaces(rows: list[Interface], setting: str, nccl: Version | None = None) -> list[Interface]:
    """Return the interfaces of NCCL's sockets, as its src/misc/socket.cc chooses them: it starts over the first one.

    `setting` is the value of NCCL_SOCKET_IFNAME, "" where it is not set. NCCL before 2.28 takes interfaces without a
    link, too, and those of libvirt as any other; of one that is not known the newest's rule is taken.
    """
    is_old = nccl is not None and nccl < (2, 28, 0)
    rows = [row for row in rows if is_old or row[2]]
    if len(setting) > 1:
        is_excluded, is_exact = setting.startswith("^"), setting.lstrip("^").startswith("=")
        patterns = setting.lstrip("^").lstrip("=").split(",")

        def matches(name: str) -> bool:
            return any(name == pattern if is_exact else name.startswith(pattern) for pattern in patterns if pattern)

        return [row for row in rows if matches(row[0]) != is_excluded]
    choices = (
        [row for row in rows if row[0].startswith("ib")],
        [row for row in rows if not row[0].startswith(("lo", "docker") if is_old else ("lo", "docker", "virbr"))],
        [row for row in rows if row[0].startswith("docker")],
        rows,
    )
    return next((choice for choice in choices if choice), [])


def bootstrap_interface(rows: list[Interface], setting: str, nccl: Version | None = None) -> Interface | None:
    """Return the interface that NCCL starts over; None where there is none."""
    return next(iter(socket_interfaces(rows, setting, nccl)), None)


def ipv6_interfaces(root: str) -> list[tuple[str, ipaddress.IPv6Address]]:
    """Return the interfaces that have IPv6 addresses, as /proc/net/if_inet6 has them, without the loopback."""
    rows = [line.split() for line in read_file(root + "/proc/net/if_inet6").splitlines()]
    return [(row[5], ipaddress.IPv6Address(int(row[0], 16))) for row in rows if len(row) > 5 and row[5] != "lo"]


def check_ipv6(
    rows: list[Interface], ipv6_rows: list[tuple[str, ipaddress.IPv6Address]], setting: str, family: str
) -> Iterator[Finding]:
    """Yield interfaces that NCCL's sockets use beside the first one for an IPv6 address alone, as veth of containers.

    Args:
        rows: The node's interfaces with an IPv4 address.
        ipv6_rows: Those with an IPv6 address.
        setting: The value of NCCL_SOCKET_IFNAME, "" where it is not set.
        family: That of NCCL_SOCKET_FAMILY.
    """
    if family == "AF_INET6" and not ipv6_rows:
        yield "error", "interface", "NCCL_SOCKET_FAMILY=AF_INET6, and no interface has an address of IPv6"
    names = {row[0] for row in rows}
    is_chosen = setting or family == "AF_INET" or any(name.startswith("ib") for name in names | dict(ipv6_rows).keys())
    if is_chosen:
        return
    local = [
        "%s (%s)" % row
        for row in ipv6_rows
        if row[0] not in names
        and row[1].is_link_local
        and NODE_LOCAL_INTERFACE.match(row[0])
        and not row[0].startswith(("docker", "virbr"))
    ]
    if local:
        interface = bootstrap_interface(rows, "")
        yield (
            "warning",
            "interface",
            "NCCL's sockets use %s, too, which other nodes do not reach: set NCCL_SOCKET_IFNAME%s"
            % (", ".join(local[:4]), "=" + interface[0] if interface else ""),
        )


def announced_address() -> str:
    """Return what vLLM, SGLang and Ray announce: their variable's address, else the default route's; "" for none."""
    for name in ("VLLM_HOST_IP", "SGLANG_HOST_IP"):
        if os.environ.get(name):
            return os.environ[name]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(OUTSIDE)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def check_route(root: str, chosen: Interface | None) -> Iterator[Finding]:
    """Yield a finding if the kernel routes the network of the interface that NCCL starts over by another one."""
    rows = [row.split() for row in read_file(root + "/proc/net/route").splitlines()[1:]]
    routes = [(row[0], row[1], row[7], int(row[6])) for row in rows if len(row) > 7 and row[1] != "00000000"]
    for name, network, mask, _ in routes:
        if chosen is None or name != chosen[0]:
            continue
        # Of equal metrics the first, as the kernel has it.
        first = min((row for row in routes if row[1:3] == (network, mask)), key=lambda row: row[3])
        if first[0] != name:
            yield (
                "warning",
                "route",
                "NCCL starts over %s, and the kernel sends to its network over %s: give each its own network"
                % (name, first[0]),
            )


def check_proxy(root: str, nodes: int) -> Iterator[Finding]:
    """Yield a finding if a service mesh takes the connections of this pod."""
    rows = [
        row.split() for row in (read_file(root + "/proc/net/tcp") + read_file(root + "/proc/net/tcp6")).splitlines()
    ]
    ports = {row[1].rpartition(":")[2] for row in rows if len(row) > 3 and row[3] == TCP_LISTEN}
    if nodes > 1 and ports >= PROXY_PORTS:
        yield (
            "warning",
            "proxy",
            "Istio's proxy takes NCCL's connections of this pod: label the pods sidecar.istio.io/inject: 'false'",
        )


def check_bootstrap(chosen: Interface | None, setting: str, nodes: int) -> Iterator[Finding]:
    """Yield why NCCL cannot start over the interface that it will choose, `setting` being NCCL_SOCKET_IFNAME."""
    if chosen is None:
        yield "error", "interface", "NCCL_SOCKET_IFNAME=%s fits no interface that is up" % setting
    elif nodes > 1 and NODE_LOCAL_INTERFACE.match(chosen[0]):
        # Of others only the name says it: a neighbour that is not reached at its address is an error of its own.
        severity = "error" if chosen[1].startswith("127.") else "warning"
        advice = "set NCCL_SOCKET_IFNAME to the nodes' own"
        sentence = "NCCL will start over %s (%s), which other nodes do not reach: %s" % (*chosen[:2], advice)
        yield severity, "interface", sentence
    elif nodes > 1 and not setting and VPN_INTERFACE.match(chosen[0]):
        sentence = "NCCL will start over %s (%s), a VPN's: set NCCL_SOCKET_IFNAME to the nodes' own" % chosen[:2]
        yield "warning", "interface", sentence


def call_resolver(function: Callable[[str], Any], name: str) -> str | None:
    """Return what a function of the resolver returns for a name: "" for an error, None for no answer in time."""
    answers: list[str] = []

    def run() -> None:
        try:
            answers.append(str(function(name)))
        except (OSError, UnicodeError):
            answers.append("")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(NAME_SECONDS)
    return answers[0] if answers else None


def resolve(name: str) -> str | None:
    """Return the IPv4 address of a name, "" where it has none; None where no answer came in time."""
    return call_resolver(socket.gethostbyname, name)


def check_full_name() -> Iterator[Finding]:
    """Yield a full name of this node that has no address: torch/distributed/elastic gives it to the ranks."""
    name = call_resolver(socket.getfqdn, socket.gethostname())
    if name and name != socket.gethostname() and call_resolver(lambda text: socket.getaddrinfo(text, None), name) == "":
        yield (
            "warning",
            "names",
            "%s, this node's full name, has no address here, and torchrun gives it to ranks with --standalone or "
            "--rdzv-backend=c10d: correct /etc/hosts or DNS, or write --local-addr" % name,
        )


def check_names(rows: list[Interface], nodes: int, rank: int, master: str) -> Iterator[Finding]:
    """Yield a name of this node or of the first one that leads to another place; `rows` are the node's interfaces."""
    if nodes < 2:
        return
    hostname, addresses = socket.gethostname(), {row[1] for row in rows}
    if not os.environ.get("GLOO_SOCKET_IFNAME"):  # else Gloo asks for no name
        address = resolve(hostname)
        if address is None:
            yield "warning", "names", "%s, this node's name, is not resolved within %d s" % (hostname, NAME_SECONDS)
        elif not address:
            yield "warning", "names", "%s, this node's name, has no address here: Gloo announces it" % hostname
        elif address.startswith("127."):
            advice = "Gloo announces it to the other nodes: correct /etc/hosts, or set GLOO_SOCKET_IFNAME"
            yield "warning", "names", "%s, this node's name, is %s here, and %s" % (hostname, address, advice)
        elif address not in addresses:
            yield "warning", "names", "%s, this node's name, is %s here, which no interface has" % (hostname, address)
    is_name = bool(master) and not re.fullmatch(r"[\d.]+|.*:.*", master)
    if rank and is_name and (resolve(master) or "").startswith("127."):
        yield "warning", "names", "%s, the first node's name, leads to this node itself: correct /etc/hosts" % master


def check_port(rank: int, port: str) -> Iterator[Finding]:
    """Yield a finding if something already listens on the first node where ranks are to meet."""
    if rank or not port.isdigit() or not 0 < int(port) < 1 << 16:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(port)))
        except PermissionError:
            return
        except OSError:
            yield "warning", "port", "MASTER_PORT=%s is in use here: an earlier job may still run" % port


def rails(devices: list[Device]) -> list[Rail]:
    """Return the RoCE devices whose interface has an IPv4 address here."""
    rows = []
    for device in devices:
        mapped = [gid.ipv4_mapped for _, gid, kind in device.gids if "v2" in kind and gid.ipv4_mapped]
        if device.usable and device.interface and mapped:
            rows.append((device.name, device.interface, str(mapped[0])))
    return rows


def rail_listener(rail: Rail) -> socket.socket:
    """Return a listener bound to the rail's own interface: connections over the node's other ones are refused."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, rail[1].encode())
    listener.bind((rail[2], 0))
    listener.listen()
    return listener


def reached_rails(local_rails: list[Rail], peer_rails: list[list[Any]]) -> set[tuple[int, int]]:
    """Return the pairs of adapters, ours and the neighbour's by position, that connect over our own interface."""
    waiting, reached, deadline = {}, set(), time.monotonic() + RAILS_SECONDS
    for number, (_, interface, _) in enumerate(local_rails):
        for other, (_, address, port) in enumerate(peer_rails):
            connection = socket.socket()
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
            connection.connect_ex((address, port))
            waiting[connection] = (number, other)
    while waiting and time.monotonic() < deadline:
        for connection in select.select([], list(waiting), [], max(0.0, deadline - time.monotonic()))[1]:
            pair = waiting.pop(connection)
            if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                reached.add(pair)
            connection.close()
    for connection in waiting:
        connection.close()
    return reached


def check_rails(local_rails: list[Rail], peer: str, peer_rails: list[list[Any]]) -> Iterator[Finding]:
    """Yield the adapters that do not reach those of the node `peer` in the same position, or its others."""
    if len(local_rails) != len(peer_rails):
        return
    try:
        reached = reached_rails(local_rails, peer_rails)
    except OSError:  # a kernel that does not let a user choose the interface
        return
    for number, (device, _, _) in enumerate(local_rails):
        peer_device, address, _ = peer_rails[number]
        if (number, number) not in reached:
            sentence = "%s does not reach %s of %s over TCP, at %s" % (device, peer_device, peer, address)
            yield "warning", "rails", sentence
            return
        unreached = [peer_rails[other][0] for other in range(len(peer_rails)) if (number, other) not in reached]
        if unreached and os.environ.get("NCCL_CROSS_NIC") != "0":
            yield (
                "warning",
                "rails",
                "%s reaches %s of %s and not %s: rails are apart, set NCCL_CROSS_NIC=0"
                % (device, peer_device, peer, unreached[0]),
            )
            return


def describe_connection_error(error: OSError) -> str:
    """Return what an error says, and what it means if nothing answers: a closed port is refused at once."""
    if isinstance(error, (TimeoutError, socket.timeout)) or error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH):
        return (
            "%s; a firewall or security group may drop it, and NCCL and Gloo need all TCP ports between nodes" % error
        )
    return str(error)


class UnresolvedNameError(OSError):
    """The first node's name has no address on this node."""


class Meeting:
    """The meeting of a job's nodes at the first one, which tells each its neighbour and what differs between nodes."""

    def __init__(
        self, facts: Facts, address: str, nodes: int, rank: int, master: str, local_rails: Sequence[Rail] = ()
    ) -> None:
        self.facts, self.nodes, self.rank, self.master = facts, nodes, rank, master
        self.listener = socket.create_server((address, 0))
        self.facts["address"] = self.listener.getsockname()
        self.rails, self.listeners = [], [self.listener]
        self.facts["rails"] = []
        self.facts["announced"] = None
        announced = announced_address()
        if announced not in ("", address) and not announced.startswith("127."):
            try:
                self.listeners.append(socket.create_server((announced, 0)))
                self.facts["announced"] = self.listeners[-1].getsockname()
            except OSError:  # not an address of this node, which check_names reports where it matters
                pass
        for rail in local_rails:
            try:
                self.listeners.append(rail_listener(rail))
            except OSError:  # the address is another network namespace's
                continue
            self.rails.append(rail)
            self.facts["rails"].append((rail[0], *self.listeners[-1].getsockname()))
        self.is_done, self.serve_until = threading.Event(), 0.0
        self.server = threading.Thread(target=self.serve, daemon=True)
        self.server.start()

    def findings(self) -> Iterator[Finding]:
        """Yield a neighbour that is not reached, and what differs between nodes."""
        try:
            answer = self.collect() if self.rank == 0 else self.report()
        except UnresolvedNameError as error:
            # In a pod the name may come later than the pod: the first one's image may still be pulled.
            yield "error" if "SLURM_JOB_ID" in os.environ else "warning", "names", str(error)
            return
        except (OSError, ValueError) as error:
            yield "warning", "neighbours", "not compared with the other nodes: %s" % error
            return
        for sentence in answer["differences"]:
            yield "warning", "differences", sentence
        name, address, peer_rails, announced = answer["neighbour"]
        try:
            connection = socket.create_connection(tuple(address), CONNECT_SECONDS)
        except OSError as error:
            yield (
                "error",
                "neighbour",
                "%s is not reached at %s, over which NCCL starts: %s"
                % (name, address[0], describe_connection_error(error)),
            )
        else:
            yield from check_large_message(connection, name)
        if announced:
            try:
                socket.create_connection(tuple(announced), CONNECT_SECONDS).close()
            except OSError as error:
                yield (
                    "warning",
                    "neighbour",
                    "%s is not reached at %s, which vLLM, SGLang and Ray announce there (%s): set VLLM_HOST_IP, "
                    "SGLANG_HOST_IP or --node-ip-address to %s" % (name, announced[0], error, address[0]),
                )
        if self.facts.get("number of usable RDMA devices") == "0":
            yield from check_shared_addresses(self.facts["interfaces"], name, answer["interfaces"], address[0])
        yield from check_rails(self.rails, name, peer_rails)

    def collect(self) -> Facts:
        """Collect the facts of all nodes, send each its answer, and return this node's."""
        present: dict[int, tuple[socket.socket | None, Facts]] = {0: (None, self.facts)}
        start, is_noted = time.monotonic(), False
        with socket.create_server(("", PORT), reuse_port=False, backlog=1024) as server:
            server.settimeout(0.2)
            while len(present) < self.nodes:
                waited = time.monotonic() - start
                if waited > MEETING_SECONDS:
                    raise OSError(self.describe_missing(set(present), waited))
                if waited > NOTE_SECONDS and not is_noted:
                    is_noted = True
                    print_finding("note", "neighbours", self.describe_missing(set(present), waited) + "; waiting")
                try:
                    connection = server.accept()[0]
                except OSError:
                    continue
                message = read_facts(connection)
                if message is None:
                    connection.close()
                    continue
                if message["rank"] not in range(self.nodes):
                    raise OSError("%s says that it is node %s of %d" % (message["node"], message["rank"], self.nodes))
                earlier = present.get(message["rank"], (None, message))[1]
                if earlier.get("node") != message.get("node"):
                    raise OSError(
                        "%s and %s both say that they are node %d"
                        % (earlier.get("node"), message.get("node"), message["rank"])
                    )
                message["seconds ahead"] = message["clock"] - time.time()
                present[message["rank"]] = (connection, message)
        differences = describe_differences([facts for _, facts in present.values()])
        differences += [
            "the clock of %s is %.0f s off" % (facts["node"], facts["seconds ahead"])
            for _, facts in present.values()
            if abs(facts.get("seconds ahead", 0.0)) > MAX_CLOCK_SECONDS
        ]
        answers = {}
        for rank, (peer, _) in present.items():
            neighbour = present[(rank + 1) % self.nodes][1]
            answers[rank] = {
                "neighbour": (neighbour["node"], neighbour["address"], neighbour["rails"], neighbour["announced"]),
                "interfaces": neighbour.get("interfaces", []),
                "differences": differences if rank == 0 else [],
            }
            if peer:
                peer.sendall(json.dumps(answers[rank]).encode() + b"\n")
                peer.close()
        return answers[0]

    def describe_missing(self, present: set[int], waited: float) -> str:
        """Return which nodes have not come in `waited` seconds; also that this is not the first, where it looks so."""
        missing = sorted(set(range(self.nodes)) - present)[:8]
        sentence = "of %d nodes %s did not come in %d s" % (self.nodes, missing, waited)
        address = resolve(self.master)
        if len(present) > 1 or not address or address.startswith("127.") or is_local(address):
            return sentence
        name = self.master if self.master == address else "%s (%s)" % (self.master, address)
        number = "%s is no address of this node, which says that it is node 0: each node needs its number" % name
        return sentence + "; " + number

    def report(self) -> Facts:
        """Send this node's facts to the first node, and return its answer."""
        start, is_noted = time.monotonic(), False
        while True:
            try:
                connection = socket.create_connection((self.master, PORT), CONNECT_SECONDS)
                break
            except OSError as error:
                if time.monotonic() > start + NOTE_SECONDS and not is_noted:
                    is_noted = True
                    state = "not resolved here" if isinstance(error, socket.gaierror) else "not reached"
                    sentence = "the first node, %s, is %s so far: %s" % (self.master, state, error)
                    print_finding("note", "neighbours", sentence)
                if time.monotonic() > start + MEETING_SECONDS:
                    if isinstance(error, socket.gaierror):
                        raise UnresolvedNameError(
                            "the name of the first node, %s, is not resolved here (%s): no rank will meet the first"
                            % (self.master, error.strerror)
                        ) from None
                    raise OSError(
                        "the first node is not reached at %s: %s" % (self.master, describe_connection_error(error))
                    ) from None
                time.sleep(0.5)
        with connection:
            connection.settimeout(MEETING_SECONDS + CONNECT_SECONDS)
            connection.sendall(json.dumps(dict(self.facts, rank=self.rank, clock=time.time())).encode() + b"\n")
            line = connection.makefile().readline()
        if not line:
            raise OSError("the first node closed the connection without an answer, as when not all nodes came")
        answer: Facts = json.loads(line)
        return answer

    def serve(self) -> None:
        """Answer each connection when its message is whole, until nobody has come for a moment after the end.

        Something that scans ports comes again and again, so that the end has a limit.
        """
        while True:
            ready = select.select(self.listeners, [], [], 2.0)[0]
            if self.is_done.is_set() and (not ready or time.monotonic() > self.serve_until):
                return
            for listener in ready:
                with listener.accept()[0] as connection:
                    connection.settimeout(CONNECT_SECONDS)
                    try:
                        while connection.recv(LARGE_MESSAGE):
                            pass
                        connection.sendall(b"k")
                    except OSError:  # the other end says what it has seen
                        continue

    def wait_for_neighbour(self) -> None:
        """Wait until the neighbour has come."""
        self.serve_until = time.monotonic() + LEAVING_SECONDS
        self.is_done.set()
        self.server.join()


def is_local(address: str) -> bool:
    """Return whether an IPv4 address is one of this node."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, PORT))  # nothing is sent: the kernel chooses the address to send from
        except OSError:
            return False
        return bool(probe.getsockname()[0] == address)


def check_shared_addresses(
    local_rows: Sequence[Sequence[Any]], name: str, peer_rows: Sequence[Sequence[Any]], address: str
) -> Iterator[Finding]:
    """Yield interfaces that NCCL's sockets use beside the first one, and whose addresses a neighbour has, too.

    A rank that connects to such an address, as of Docker's bridges, reaches its own node.

    Args:
        local_rows: The interfaces of this node that NCCL's sockets use.
        name: The neighbour's.
        peer_rows: Those of the neighbour.
        address: The neighbour's, over which NCCL starts.
    """
    peer_addresses = {row[1] for row in peer_rows}
    shared = ["%s (%s)" % (row[0], row[1]) for row in local_rows if row[1] in peer_addresses]
    if shared:
        interface = next((row[0] for row in peer_rows if row[1] == address), "")
        yield (
            "warning",
            "interface",
            "NCCL's sockets use %s, too, and %s has the same addresses: set NCCL_SOCKET_IFNAME=%s"
            % (", ".join(shared[:4]), name, interface),
        )


def read_facts(connection: socket.socket) -> Facts | None:
    """Return the facts that a node sends; None for a connection of something else, as of a port scanner."""
    connection.settimeout(CONNECT_SECONDS)
    try:
        message = json.loads(connection.makefile().readline())
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) and "rank" in message and "clock" in message else None


def check_large_message(connection: socket.socket, name: str) -> Iterator[Finding]:
    """Yield a finding if a message of many packets does not arrive, where a connection does."""
    with connection:
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.sendall(bytes(LARGE_MESSAGE))
            connection.shutdown(socket.SHUT_WR)
            if not connection.recv(1):
                raise OSError("the connection was closed before it was whole")
        except OSError as error:
            yield (
                "error",
                "neighbour",
                "%s is reached, and a message of %d KiB does not arrive (%s): compare the MTU of both nodes and of the "
                "network between them, as with ping -M do -s 8972" % (name, LARGE_MESSAGE >> 10, error),
            )


def describe_differences(nodes: list[Facts]) -> list[str]:
    """Return a sentence for each fact that differs between nodes: its values, and the nodes that deviate."""
    sentences = []
    for name in sorted(
        {name for node in nodes for name in node}
        - {"node", "address", "announced", "interfaces", "rank", "rails", "clock", "seconds ahead"}
    ):
        by_value: dict[str, list[str]] = {}
        for node in nodes:
            by_value.setdefault(str(node.get(name, "nothing")), []).append(node["node"])
        if len(by_value) > 1:
            ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
            deviations = "; ".join("%s on %s" % (value, ", ".join(names[:4])) for value, names in ordered[1:4])
            sentences.append("%s differs: %s on %d nodes; %s" % (name, ordered[0][0], len(ordered[0][1]), deviations))
    return sentences


def join_distinct(values: Iterable[str]) -> str:
    """Return the different ones of some values, in their order and with commas."""
    return ",".join(sorted(set(values)))


def node_facts(root: str, devices: list[Device], name: str, nccl: Version | None = None) -> Facts:
    """Return the facts that should be the same on all nodes of a job."""
    driver = re.search(r"\s(\d+\.\d+[.\d]*)\s", first_line(root + "/proc/driver/nvidia/version"))
    plugin = os.environ.get("NCCL_NET_PLUGIN", "")
    has_plugin = not root and has_library(plugin if plugin.endswith(".so") else "libnccl-net.so")
    models = [read_file(path) for path in glob.glob(root + "/proc/driver/nvidia/gpus/*/information")]
    usable = [device for device in devices if device.usable]
    routed = [str(index) for device in usable for index, gid, kind in device.gids if "v2" in kind and gid.ipv4_mapped]
    return {
        **{key: value for key, value in os.environ.items() if SHARED_SETTINGS.fullmatch(key)},
        "node": name,
        "kernel": os.uname().release,
        "GPUs": join_distinct(text.partition("Model:")[2].split("\n")[0].strip() for text in models),
        "number of GPUs": str(len(glob.glob(root + "/dev/nvidia[0-9]*"))),
        "NVIDIA driver": driver.group(1) if driver else "",
        "nvidia_peermem": str(os.path.isdir(root + "/sys/module/nvidia_peermem")),
        "torch": "" if root else torch_version(),
        "NCCL": "%d.%d.%d" % nccl if nccl else "",
        "NCCL's network plugin": "found" if has_plugin else "not found",
        "EFA driver": first_line(root + "/sys/module/efa/version"),
        "RDMA devices": join_distinct(device.driver for device in usable),
        "number of usable RDMA devices": str(len(usable)),
        "firmware of adapters": join_distinct(device.firmware for device in usable),
        "link rates": join_distinct(device.rate for device in usable),
        "MTU": join_distinct(device.mtu for device in usable),
        "indexes of RoCE v2": join_distinct(routed),
    }


def run_program(*command: str) -> tuple[int, str] | None:
    """Return a program's exit code and output; None where there is no such program."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def local_findings(root: str, options: argparse.Namespace, nccl: Version | None) -> Iterator[Finding]:
    """Yield the findings about this node alone; only one where it has neither a GPU nor an RDMA device."""
    devices = read_devices(root)
    gpus = glob.glob(root + "/dev/nvidia[0-9]*")
    if not devices and not gpus:
        yield (
            "warning",
            "hardware",
            "neither a GPU nor an RDMA device is here: only the names and interfaces were checked",
        )
        return
    carriers = fabric_devices(devices, options.fabric)
    yield from check_devices(devices, options.fabric, options.adapters, options.nodes)
    yield from check_rates(carriers)
    if options.nodes > 1:
        yield from check_link_layers(carriers)
    yield from check_pci_links(carriers)
    yield from check_settings(root, devices, carriers)
    yield from check_prefix(carriers)
    yield from check_gids(carriers, os.environ.get("NCCL_IB_GID_INDEX", ""), nccl)
    yield from check_memory(root, devices)
    yield from check_limits(root, len(gpus), options.nodes)
    yield from check_folders(root)
    yield from check_huge_pages(root, options.fabric)
    yield from check_gpus(root, options.gpus, options.nodes)
    yield from check_cuda(root, gpus)
    yield from check_fabric_manager(root)
    yield from check_kernel_log(root)
    yield from check_gdrcopy(root, gpus, not root and has_library("libgdrapi.so.2"))
    if options.fabric == "efa":
        yield from check_efa_peer(root, devices, gpus)
    else:
        yield from check_gpudirect(root, devices, gpus, nccl)


def node_name() -> str:
    """Return the node's name: in a pod Kubernetes', which the pod's own hostname is not."""
    return os.environ.get("RDMA_IMAGES_NODE") or socket.gethostname()


def print_finding(severity: str, name: str, sentence: str) -> None:
    """Print the line of a finding."""
    print(MARK, node_name(), severity, name + ":", sentence, flush=True)


def check(options: argparse.Namespace) -> Iterator[Finding]:
    """Yield the findings about this node, those about its neighbours last."""
    root = options.root.rstrip("/")
    nccl = None if root else nccl_version()
    yield from local_findings(root, options, nccl)
    rows = read_interfaces()
    setting = os.environ.get("NCCL_SOCKET_IFNAME", "")
    chosen = bootstrap_interface(rows, setting, nccl)
    yield from check_bootstrap(chosen, setting, options.nodes)
    yield from check_route(root, chosen)
    yield from check_proxy(root, options.nodes)
    yield from check_names(rows, options.nodes, options.rank, options.master)
    yield from check_full_name()
    yield from check_port(options.rank, os.environ.get("MASTER_PORT", ""))
    if options.nodes > 1 and options.master and chosen:
        devices = read_devices(root)
        facts = node_facts(root, devices, node_name(), nccl)
        facts["interfaces"] = socket_interfaces(rows, setting, nccl)
        facts["MTU of NCCL's first interface"] = first_line(root + "/sys/class/net/%s/mtu" % chosen[0])
        if not any(device.usable for device in devices):
            family = os.environ.get("NCCL_SOCKET_FAMILY", "")
            yield from check_ipv6(rows, ipv6_interfaces(root), setting, family)
        local_rails = rails(fabric_devices(devices, options.fabric))
        meeting = Meeting(facts, chosen[1], options.nodes, options.rank, options.master, local_rails)
        yield from meeting.findings()
        meeting.wait_for_neighbour()


def main(arguments: list[str]) -> int:
    """Check, print, and return the exit code: 1 after an error."""
    parser = argparse.ArgumentParser(prog=MARK)
    parser.add_argument("--fabric", default="")
    parser.add_argument("--adapters", type=int, default=0)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--master", default="")
    parser.add_argument("--root", default="/")
    started, failed = time.monotonic(), False
    for severity, name, sentence in check(parser.parse_args(arguments)):
        failed |= severity == "error"
        print_finding(severity, name, sentence)
    print(MARK, node_name(), "done", "in %.1f s" % (time.monotonic() - started), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
