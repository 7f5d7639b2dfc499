"""Read the RDMA devices of this machine, and check that a job can use its fabric's, by their limits of memory, too."""

from __future__ import annotations

import errno
import glob
import ipaddress
import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Tuple

from rdma_images.preflight.system import Finding, first_line, open_errno, read_file, run_program

Gid = Tuple[int, ipaddress.IPv6Address, str]  # index, address, type

FOLDER = "/sys/class/infiniband"
MTUS = (256, 512, 1024, 2048, 4096)  # of RDMA: a device has the largest that fits into its interface's
CAP_IPC_LOCK = 14  # bit of the capability that lifts the limit of locked memory
MIN_LOCKED_BYTES = 1 << 30  # NCCL registers its own buffers, of megabytes for each channel and peer
MIN_SHM_BYTES = 1 << 30  # Docker gives 64 MiB
MEMLOCK_FIX = (
    "Docker: --ulimit memlock=-1:-1. Slurm: LimitMEMLOCK=infinity for slurmd. Kubernetes: the same for containerd; as "
    "root, IPC_LOCK also does."
)
REFUSALS = {
    errno.EACCES: "this user has no right to its file: rdma-core's udev rules give it mode 0666",
    errno.EPERM: "the container's cgroup does not let the device in: ask for it, as with --device",
}


@dataclass(frozen=True)
class Device:
    """An RDMA device, with its first active port, and whether this container may use it."""

    name: str
    driver: str
    gids: tuple[Gid, ...]
    mtu: str  # of its network interface; "" where this network namespace has none
    state: str
    rate: str
    link_layer: str
    firmware: str
    gpu_memory_peers: str  # of EFA: the GPUs whose memory it reaches, "NA" for none
    open_errno: int  # of opening its file; 0 where it opens

    @classmethod
    def read(cls, root: str, path: str) -> Device:
        """Return the device of the folder `path` in /sys/class/infiniband below `root`."""
        ports = sorted(glob.glob(path + "/ports/*"), key=lambda port: "ACTIVE" not in first_line(port + "/state"))
        port = ports[0] if ports else path
        verbs = [os.path.basename(entry) for entry in glob.glob(path + "/device/infiniband_verbs/uverbs*")]
        interfaces = glob.glob(path + "/device/net/*")
        return cls(
            name=os.path.basename(path),
            driver=os.path.basename(os.path.realpath(path + "/device/driver")),
            gids=tuple(gid_table(port)),
            mtu=first_line(interfaces[0] + "/mtu") if interfaces else "",
            state=first_line(port + "/state"),
            rate=first_line(port + "/rate"),
            link_layer=first_line(port + "/link_layer"),
            firmware=first_line(path + "/fw_ver"),
            gpu_memory_peers=first_line(path + "/device/p2p"),
            open_errno=open_errno(root + "/dev/infiniband/" + verbs[0]) if verbs else errno.ENOENT,
        )

    @property
    def is_usable(self) -> bool:
        """Return whether its file opens."""
        return not self.open_errno

    @property
    def refusal(self) -> str:
        """Return why its file does not open."""
        words = REFUSALS.get(self.open_errno, "no more is known")
        return f"{self.name} cannot be opened: {os.strerror(self.open_errno)}; {words}"


def gid_table(port: str) -> Iterator[Gid]:
    """Yield index, address and type of each GID of a port that is set."""
    for index in range(256):
        text = first_line(f"{port}/gids/{index}")
        if not text:
            return
        address = ipaddress.IPv6Address(text)
        if int(address):
            yield index, address, first_line(f"{port}/gid_attrs/types/{index}")


def read_devices(root: str = "") -> list[Device]:
    """Return the RDMA devices below `root` by name."""
    return [Device.read(root, path) for path in sorted(glob.glob(root + FOLDER + "/*"))]


def devices_of_fabric(devices: list[Device], fabric: str) -> list[Device]:
    """Return the devices that carry "efa" or "erdma"; for "any" or "", of whichever fabric this machine has."""
    drivers = {device.driver for device in devices}
    if fabric not in ("efa", "erdma"):
        fabric = next((name for name in ("efa", "erdma") if name in drivers), "")
    return [device for device in devices if not fabric or device.driver == fabric]


def selected_devices(devices: list[Device]) -> list[Device]:
    """Return the devices that NCCL_IB_HCA selects; all if it is not set, or selects none."""
    setting = os.environ.get("NCCL_IB_HCA", "")
    names = [word.partition(":")[0].strip() for word in setting.lstrip("^=").split(",") if word]
    is_exact = "=" in setting  # else NCCL takes beginnings of names
    named = [row for row in devices if any(row.name == n or (row.name.startswith(n) and not is_exact) for n in names)]
    return [device for device in devices if (device in named) != setting.startswith("^")] if named else devices


def check_devices(devices: list[Device], fabric: str, count: int, nodes: int) -> Iterator[Finding]:
    """Yield the faults of the devices of `fabric` ("" if TCP will do), of which the job asked for `count` (0: any)."""
    present = devices_of_fabric(devices, fabric)
    usable = [device for device in present if device.is_usable]
    is_required = bool(fabric or count)
    if nodes < 2 and not (is_required or usable):  # missing devices are then no fault
        return
    reason = next((device.refusal for device in present if device.open_errno not in (0, errno.ENOENT)), "")
    if not present:
        kind = "RDMA" if fabric in ("", "any") else fabric
        sentence = f"the kernel has no {kind} device: its driver is not loaded, or the instance has none"
        yield "error" if is_required else "note", "devices", sentence
    elif not usable:
        names = ", ".join(device.name for device in present[:4])
        absent = f"the node has {names}, but this container's /dev/infiniband has none of them: request the devices"
        yield "error" if is_required else "warning", "devices", reason or absent
    elif len(usable) < count:
        counted = f"{len(usable)} of {count} adapters can be used here"
        # With one less the job runs nearly as fast, and a device plugin may have kept it for the node.
        severity = "error" if len(usable) < count - 1 else "warning"
        yield severity, "devices", f"{counted}: {reason}" if reason else counted


def check_ports(devices: list[Device]) -> Iterator[Finding]:
    """Yield the devices whose port has no link; `devices` are the fabric's that can be used."""
    down = [device.name for device in selected_devices(devices) if device.state and "ACTIVE" not in device.state]
    if down:
        yield "error", "ports", f"the port is not active: {', '.join(down)}"


def check_gids(devices: list[Device], index: str) -> Iterator[Finding]:
    """Yield RoCE devices without a routed GID, or with another GID at `index` (NCCL_IB_GID_INDEX)."""
    for device in selected_devices(devices):
        if not (device.is_usable and device.link_layer == "Ethernet"):
            continue
        if not any("v2" in kind and not gid.is_link_local for _, gid, kind in device.gids):
            yield "error", "gids", f"{device.name} has no routed GID of RoCE v2: give its interface an IP address"
        chosen = [gid for number, gid, _ in device.gids if index.isdigit() and number == int(index)]
        if index.isdigit() and not chosen:
            yield "error", "gids", f"NCCL_IB_GID_INDEX={index}, and {device.name} has no such GID"
        elif chosen and chosen[0].is_link_local:
            yield "warning", "gids", f"NCCL_IB_GID_INDEX={index} is a link-local GID of {device.name}"


def check_mtu(devices: list[Device], expected: int) -> Iterator[Finding]:
    """Yield devices whose interface has another MTU than `expected` (0: any); NCCL's LL128 then corrupts data."""
    fitting = max((mtu for mtu in MTUS if mtu <= expected), default=0)
    # As libibverbs has it, for a pod does not see the interface.
    listing = run_program("ibv_devinfo") if fitting else ""
    mtus = dict(re.findall(r"^hca_id:\s*(\S+)(?:\n(?!hca_id).*)*?active_mtu:\s*(\d+)", listing, re.M))
    for device in devices if fitting else ():
        if device.mtu and device.mtu != str(expected):
            sentence = f"the interface of {device.name} has an MTU of {device.mtu}, and the job was made for {expected}"
            yield "error", "mtu", sentence
        elif not device.mtu and int(mtus.get(device.name, fitting)) != fitting:
            sentence = f"{device.name} has an active MTU of {mtus[device.name]}, and over an interface with the job's"
            yield "error", "mtu", f"{sentence} MTU of {expected} it has {fitting}"


def locked_memory(root: str = "") -> int | None:
    """Return the bytes that this process may lock; None for no limit, as with IPC_LOCK (not in CapBnd alone)."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    match = re.search(r"^CapEff:\s*(\w+)", read_file(root + "/proc/self/status"), re.MULTILINE)
    has_capability = match is not None and int(match.group(1), 16) >> CAP_IPC_LOCK & 1
    return None if limit == resource.RLIM_INFINITY or has_capability else limit


def check_limits(root: str, devices: list[Device]) -> Iterator[Finding]:
    """Yield small limits of memory that the fabric's devices lock, of huge pages for EFA, and of /dev/shm."""
    limit = locked_memory(root)
    if devices and limit is not None:
        reason = f"only {limit // 1024} KiB of memory can be locked; RDMA needs no limit. "
        yield "error" if limit < MIN_LOCKED_BYTES else "warning", "memlock", reason + MEMLOCK_FIX
    has_efa = any(device.driver == "efa" for device in devices)
    if has_efa and re.search(r"^HugePages_Free: +0$", read_file(root + "/proc/meminfo"), re.MULTILINE):
        yield "warning", "hugepages", "no huge page is free: sysctl vm.nr_hugepages before the job"
    stat = os.statvfs(root + "/dev/shm") if os.path.isdir(root + "/dev/shm") else None
    if stat and stat.f_bavail * stat.f_frsize < MIN_SHM_BYTES:  # over which NCCL connects the GPUs of a node
        free, size = stat.f_bavail * stat.f_frsize >> 20, stat.f_blocks * stat.f_frsize >> 20
        yield "warning", "shm", f"{free} of {size} MiB are free in /dev/shm: NCCL and data loaders need more"
