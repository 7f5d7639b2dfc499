"""Check the fabric's RDMA devices: that they can be opened, their ports, links and GIDs."""

from __future__ import annotations

import errno
import glob
import ipaddress
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rdma_images.jobs.node.device_settings import selected_devices
from rdma_images.jobs.node.system import explain_open_error, first_line, kernel_messages, open_errno

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.system import Version

    Gid = tuple[int, ipaddress.IPv6Address, str]  # index, address, type

PARTITION, FULL_MEMBER = 0x7FFF, 0x8000  # the bits of a partition key: InfiniBand, volume 1, 10.9.2
NETWORK_CLASSES = ("0x02", "0x0c06")  # of PCI devices: networks, and InfiniBand
# A driver's message about a device: its driver, its address and what it says.
DRIVER_MESSAGE = re.compile(r"(\w+ [\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d)\b[^:]*: (.+)")
FIRMWARE = re.compile(r"\b(?:FW|firmware|NVM)\b", re.IGNORECASE)
OUTDATED = re.compile(r"please (?:upgrade|update)|too old|older (?:version|than)|out ?dated", re.IGNORECASE)


@dataclass(frozen=True)
class Device:
    """An RDMA device, with its first active port, and whether this container may use it."""

    name: str
    driver: str
    path: str  # its folder
    port: str  # the folder of that port; of the first one where none is active
    ports: tuple[str, ...]  # the numbers of all ports
    gids: tuple[Gid, ...]
    interface: str  # of the network, "" for none
    mtu: str
    state: str
    rate: str
    link_layer: str
    model: str
    firmware: str
    chip: str  # the same for devices that share one
    pci: str  # the address
    peer: str  # of EFA: whose GPUs it reaches, "NA" for none's
    traffic_class: str
    open_errno: int  # of opening its file; 0 where it opens

    @classmethod
    def read(cls, root: str, path: str) -> Device:
        """Return the device of the folder `path` in /sys/class/infiniband below `root`."""
        port = active_port(path)
        verbs = [os.path.basename(entry) for entry in glob.glob(path + "/device/infiniband_verbs/uverbs*")]
        interfaces = sorted({first_line(entry) for entry in glob.glob(port + "/gid_attrs/ndevs/*")} - {""})
        return cls(
            name=os.path.basename(path),
            driver=os.path.basename(os.path.realpath(path + "/device/driver")),
            path=path,
            port=port,
            ports=tuple(os.path.basename(entry) for entry in glob.glob(path + "/ports/*")),
            gids=tuple(gid_table(port)),
            interface=interfaces[0] if interfaces else "",
            mtu=first_line(root + "/sys/class/net/" + interfaces[0] + "/mtu") if interfaces else "",
            state=first_line(port + "/state"),
            rate=first_line(port + "/rate"),
            link_layer=first_line(port + "/link_layer"),
            model=first_line(path + "/device/vendor") + first_line(path + "/device/device"),
            firmware=first_line(path + "/fw_ver"),
            chip=first_line(path + "/sys_image_guid"),
            pci=os.path.basename(os.path.realpath(path + "/device")),
            peer=first_line(path + "/device/p2p"),
            traffic_class=first_line(path + "/tc/1/traffic_class").partition("=")[2].strip(),
            open_errno=open_errno(root + "/dev/infiniband/" + verbs[0]) if verbs else errno.ENOENT,
        )

    @property
    def usable(self) -> bool:
        """Return whether its file opens."""
        return not self.open_errno

    @property
    def ethernet(self) -> bool:
        """Return whether its port is one of RoCE or eRDMA."""
        return self.link_layer == "Ethernet"

    @property
    def subnet(self) -> str:
        """Return the subnet of an InfiniBand port, as its manager named it; "" for others."""
        is_named = self.link_layer == "InfiniBand" and self.gids
        return "%016x" % (int(self.gids[0][1]) >> 64) if is_named else ""

    @property
    def partition_keys(self) -> dict[int, int]:
        """Return an InfiniBand port's partition keys by their index, without empty ones."""
        paths = glob.glob(self.port + "/pkeys/*") if self.link_layer == "InfiniBand" else []
        keys = {int(os.path.basename(path)): int(first_line(path) or "0", 16) for path in paths}
        return {index: key for index, key in sorted(keys.items()) if key & PARTITION}


def active_port(path: str) -> str:
    """Return the folder of a device's first active port, or else of its first one."""
    ports = sorted(glob.glob(path + "/ports/*"), key=lambda port: (len(port), port))
    active = [port for port in ports if "ACTIVE" in first_line(port + "/state")]
    return (active + ports + [path + "/ports/1"])[0]


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
    return [Device.read(root, path) for path in sorted(glob.glob(root + "/sys/class/infiniband/*"))]


def fabric_devices(devices: list[Device], fabric: str) -> list[Device]:
    """Return the devices that carry `fabric`: EFA's, eRDMA's, or those of neither."""
    if fabric in ("efa", "erdma"):
        return [device for device in devices if device.driver == fabric]
    return [device for device in devices if device.driver not in ("efa", "erdma")]


def total_rate(devices: list[Device], count: int) -> float:
    """Return what the fastest active ports carry together, in GB/s; 0.0 where none is active.

    Args:
        devices: The node's RDMA devices.
        count: How many ports; 0 for all.
    """
    active = [device.rate.split() for device in devices if "ACTIVE" in device.state]
    rates = sorted((float(words[0]) / 8 for words in active if words), reverse=True)
    return sum(rates[: count or None])


def check_devices(devices: list[Device], fabric: str, count: int, nodes: int) -> Iterator[Finding]:
    """Yield what is wrong with the fabric's devices; one node may do without any."""
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
            severity if fabric or count else "note",  # TCP may be the job's network
            "devices",
            "the kernel has no %s device: its driver is not loaded, or the instance has none" % (fabric or "RDMA"),
        )
    elif not usable:
        names = ", ".join(device.name for device in carriers[:4])
        absent = (
            "the kernel has %s, and /dev/infiniband of this container has none of them: ask for the devices" % names
        )
        yield severity, "devices", reason or absent
    elif len(usable) < count:
        counted = "%d of %d adapters can be used here" % (len(usable), count)
        # With one less the job runs nearly as fast, and a device plugin may have kept it for the node.
        severity = "error" if len(usable) < count - 1 else "warning"
        yield severity, "devices", "%s: %s" % (counted, reason) if reason else counted
    selected = selected_devices(usable, "NCCL_IB_HCA", os.environ.get("NCCL_IB_HCA", ""))
    down = [device.name for device in selected if device.state and "ACTIVE" not in device.state]
    if down:
        yield "error", "ports", "the port is not active: %s" % ", ".join(down)
    others = [device.name for device in devices if device.usable and device not in carriers]
    if fabric == "efa" and usable and others:
        sentence = (
            "%s is in /dev/infiniband, too, and can hide EFA: by a hostPath of /dev/infiniband, which is to be left "
            "out, or an EFA device plugin before 0.5.10, which counts NVLink's controllers as EFA"
        )
        yield "warning", "devices", sentence % others[0]


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
            sentence = "the link of %s is slower than that of the others, %d Gb/s"
            yield "warning", "rates", sentence % (", ".join(slow[:4]), best)


def check_link_layers(devices: list[Device]) -> Iterator[Finding]:
    """Yield Ethernet ports that NCCL takes beside ports of InfiniBand.

    A port of the one reaches none of the other (issue 302 of NVIDIA/nccl).
    """
    selected = selected_devices(devices, "NCCL_IB_HCA", os.environ.get("NCCL_IB_HCA", ""))
    active = [device for device in selected if device.usable and "ACTIVE" in device.state]
    ethernet = [device.name for device in active if device.ethernet]
    infiniband = [device.name for device in active if not device.ethernet]
    if ethernet and infiniband:
        sentence = (
            "NCCL takes %s of Ethernet beside %s of InfiniBand, which do not reach each other: set NCCL_IB_HCA=%s"
        )
        yield (
            "warning",
            "devices",
            sentence % (", ".join(ethernet[:4]), ", ".join(infiniband[:4]), ",".join(infiniband)),
        )


def check_partition_keys(devices: list[Device], setting: str) -> Iterator[Finding]:
    """Yield the first InfiniBand port that is no full member of NCCL's partition.

    `setting` is NCCL_IB_PKEY as it is set. NCCL takes the key at index 0 without it.
    """
    if not re.fullmatch(r"\d*", setting):
        return
    index = int(setting or "0")
    for device in selected_devices(devices, "NCCL_IB_HCA", os.environ.get("NCCL_IB_HCA", "")):
        keys = device.partition_keys if device.usable else {}
        key = keys.get(index, 0)
        if not keys or key & FULL_MEMBER:
            continue
        state = "has no partition key"
        if key:
            state = "is a limited member of its partition, which reaches no other one, by its key 0x%04x" % key
        full = next((number for number, other in keys.items() if other & FULL_MEMBER), None)
        advice = "" if full is None else ": 0x%04x is at index %d, set NCCL_IB_PKEY=%d" % (keys[full], full, full)
        yield "warning", "ports", "%s %s at index %d, which NCCL takes%s" % (device.name, state, index, advice)
        return


def check_firmware(root: str) -> Iterator[Finding]:
    """Yield adapters whose driver asks for newer firmware, the first of each driver."""
    shown = set()
    for _, message in kernel_messages(root):
        match = DRIVER_MESSAGE.match(message)
        if not match or not (FIRMWARE.search(match.group(2)) and OUTDATED.search(match.group(2))):
            continue
        driver, address = match.group(1).split()
        pci_class = first_line(root + "/sys/bus/pci/devices/%s/class" % address)
        if driver not in shown and pci_class.startswith(NETWORK_CLASSES):
            shown.add(driver)
            yield "warning", "devices", "the kernel's log asks for newer firmware: %s" % message[:200]


def check_pci_links(devices: list[Device]) -> Iterator[Finding]:
    """Yield adapters whose PCI Express link is below what both of its ends can have."""
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
                sentence = "the PCI Express link of %s has %g %s, and the adapter and its slot can have %g"
                yield "warning", "rates", sentence % (device.name, values[0], unit, min(values[1:]))


def check_gids(devices: list[Device], index: str, nccl: Version | None = None) -> Iterator[Finding]:
    """Yield RoCE devices without a routed GID, or of which an old NCCL takes another.

    `index` is NCCL_IB_GID_INDEX as it is set.
    """
    takes_first_gid = nccl is not None and nccl < (2, 21, 0) and not index  # src/transport/net_ib.cc
    for device in selected_devices(devices, "NCCL_IB_HCA", os.environ.get("NCCL_IB_HCA", "")):
        if not (device.usable and device.ethernet):
            continue
        if not any("v2" in kind and not gid.is_link_local for _, gid, kind in device.gids):
            sentence = "%s has no GID of RoCE v2 that is routed: give its interface an IP address"
            yield "error", "gids", sentence % device.name
        routed = [number for number, gid, kind in device.gids if "v2" in kind and gid.ipv4_mapped]
        if takes_first_gid and routed and 0 not in routed:
            sentence = "NCCL before 2.21 takes GID 0 of %s, which is not routed: NCCL_IB_GID_INDEX=%d"
            yield "warning", "gids", sentence % (device.name, routed[0])
