"""Check the interfaces of NCCL's sockets, which it chooses by the rule of its version."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from rdma_images.preflight.system import Finding, NcclLibrary

IFF_RUNNING = 0x40  # include/uapi/linux/if.h
# Interfaces of containers, virtual machines and VPNs by the names that Docker, libvirt, CNI, Podman, LXC, Tailscale,
# WireGuard, OpenVPN and ZeroTier give them.
OTHER_INTERFACE = re.compile(
    r"lo|docker|virbr|veth|cni|pod-id-link|flannel|cali|podman|lxcbr|lxdbr|nerdctl|br-[\da-f]{12}$"
    r"|tailscale|wg\d|tun\d|zt\w{8}"
)


class Interface(NamedTuple):
    """A network interface with an IPv4 address; running is one that is up and has a link."""

    name: str
    address: str
    is_running: bool


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
            interfaces.append(Interface(name, socket.inet_ntoa(row[20:24]), bool(flags & IFF_RUNNING)))
    return interfaces


def socket_interfaces(rows: list[Interface], setting: str, nccl: NcclLibrary | None = None) -> list[Interface]:
    """Return the interfaces of NCCL's sockets, by its own rule: it starts over the first.

    `setting` is the value of NCCL_SOCKET_IFNAME, "" where it is not set. NCCL before 2.28 takes interfaces without a
    link, too, and those of libvirt as any other; of one that is not known the newest's rule is taken.
    """
    is_old = nccl is not None and nccl.version < (2, 28, 0)
    rows = [row for row in rows if is_old or row.is_running]
    if len(setting) > 1:
        is_excluded, is_exact = setting.startswith("^"), setting.lstrip("^").startswith("=")
        names = [name for name in setting.lstrip("^").lstrip("=").split(",") if name]
        named = [row for row in rows if any(row.name == n if is_exact else row.name.startswith(n) for n in names)]
        return [row for row in rows if (row in named) != is_excluded]
    choices = (
        [row for row in rows if row.name.startswith("ib")],
        [row for row in rows if not row.name.startswith(("lo", "docker") if is_old else ("lo", "docker", "virbr"))],
        [row for row in rows if row.name.startswith("docker")],
        rows,
    )
    return next((choice for choice in choices if choice), [])


def check_interfaces(rows: list[Interface], used: list[Interface], setting: str, nodes: int) -> Iterator[Finding]:
    """Yield why NCCL cannot start over the first of the interfaces that are `used`, by NCCL_SOCKET_IFNAME's setting."""
    if not used:
        states = ", ".join("%s%s" % (name, "" if is_running else " (down)") for name, _, is_running in rows[:8])
        reason = "NCCL_SOCKET_IFNAME=%s fits no interface" % setting if setting else "no interface with an IPv4 address"
        yield "error", "interface", "NCCL cannot start: %s that is up; this node has %s" % (reason, states)
    elif nodes > 1 and OTHER_INTERFACE.match(used[0].name):
        # Of others only the name says it: a neighbour that is not reached at its address is an error of its own.
        severity = "error" if used[0].address.startswith("127.") else "warning"
        sentence = "NCCL will start over %s (%s), which is not between the nodes: set NCCL_SOCKET_IFNAME to their own"
        yield severity, "interface", sentence % (used[0].name, used[0].address)
