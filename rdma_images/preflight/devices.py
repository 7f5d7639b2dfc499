"""Read the RDMA devices of this machine from the kernel's files."""

from __future__ import annotations

import errno
import glob
import ipaddress
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rdma_images.preflight.system import first_line, open_errno, run_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    Gid = tuple[int, ipaddress.IPv6Address, str]  # index, address, type

FOLDER = "/sys/class/infiniband"


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
    peer: str  # of EFA: whose memory it reaches beside the host's, "NA" for none's
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
            peer=first_line(path + "/device/p2p"),
            open_errno=open_errno(root + "/dev/infiniband/" + verbs[0]) if verbs else errno.ENOENT,
        )

    @property
    def is_usable(self) -> bool:
        """Return whether its file opens."""
        return not self.open_errno

    @property
    def is_active(self) -> bool:
        """Return whether its port has a link."""
        return "ACTIVE" in self.state


def gid_table(port: str) -> Iterator[Gid]:
    """Yield index, address and type of each GID of a port that is set."""
    for index in range(256):
        text = first_line("%s/gids/%d" % (port, index))
        if not text:
            return
        address = ipaddress.IPv6Address(text)
        if int(address):
            yield index, address, first_line("%s/gid_attrs/types/%d" % (port, index))


def read_devices(root: str = "") -> list[Device]:
    """Return the RDMA devices below `root` by name."""
    return [Device.read(root, path) for path in sorted(glob.glob(root + FOLDER + "/*"))]


def fabric_devices(devices: list[Device], fabric: str) -> list[Device]:
    """Return the devices that carry "efa" or "erdma"; for "any", or "", those of the fabric that this machine has."""
    drivers = {device.driver for device in devices}
    if fabric not in ("efa", "erdma"):
        fabric = next((name for name in ("efa", "erdma") if name in drivers), "")
    return [device for device in devices if not fabric or device.driver == fabric]


def named_devices(devices: list[Device], setting: str) -> dict[str, list[Device]]:
    """Return the devices that each name in the value of NCCL_IB_HCA stands for."""
    names = [word.strip() for word in setting.lstrip("^=").split(",") if word.strip()]
    return {
        name: [
            device
            for device in devices
            # NCCL takes beginnings of names, unless a "=" stands before them.
            if device.name == name.partition(":")[0] or ("=" not in setting and device.name.startswith(name))
        ]
        for name in names
    }


def selected_devices(devices: list[Device]) -> list[Device]:
    """Return the devices that NCCL_IB_HCA leaves; all, where it is not set or names none of them."""
    setting = os.environ.get("NCCL_IB_HCA", "")
    named = [device for fitting in named_devices(devices, setting).values() for device in fitting]
    return [device for device in devices if (device in named) != setting.startswith("^")] if named else devices


def total_rate(devices: list[Device]) -> float:
    """Return what the active ports carry together, in GB/s; 0.0 where none is active."""
    return sum(float(device.rate.split()[0]) / 8 for device in devices if device.is_active and device.rate)


def active_mtus() -> dict[str, int]:
    """Return the MTU of each device's port by its name, as libibverbs has it: a pod does not see the interface."""
    found = re.findall(r"^hca_id:\s*(\S+)(?:\n(?!hca_id).*)*?active_mtu:\s*(\d+)", run_program("ibv_devinfo"), re.M)
    return {name: int(mtu) for name, mtu in found}
