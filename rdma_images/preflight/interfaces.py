"""Check the interfaces of NCCL's sockets, which it chooses by the rule of its version."""

from __future__ import annotations

import ctypes
import re
import socket
import sys
from collections.abc import Iterator
from typing import NamedTuple

from rdma_images.preflight.system import Finding, NcclLibrary

IFF_RUNNING = 0x40  # include/uapi/linux/if.h
FAMILIES = {"AF_INET": socket.AF_INET, "AF_INET6": socket.AF_INET6}  # by the values of NCCL_SOCKET_FAMILY
# Interfaces of containers, virtual machines and VPNs by the names that Docker, libvirt, CNI, EKS' egress, Podman, LXC,
# Tailscale, WireGuard, OpenVPN and ZeroTier give them.
OTHER_INTERFACE = re.compile(
    r"lo|docker|virbr|veth|cni|v[46]if0|pod-id-link|flannel|cali|podman|lxcbr|lxdbr|nerdctl|br-[\da-f]{12}$"
    r"|tailscale|wg\d|tun\d|zt\w{8}"
)


class Interface(NamedTuple):
    """A network interface with one of its addresses; running is one that is up and has a link."""

    name: str
    address: str
    is_running: bool


class InterfaceRow(ctypes.Structure):
    """The beginning of getifaddrs(3)'s struct ifaddrs."""

    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint), ("at", ctypes.c_void_p)]


def read_interfaces() -> list[Interface]:
    """Return the interfaces with each of their addresses, in the order in which NCCL gets them: IPv4 first."""
    first, interfaces = ctypes.c_void_p(), []
    ctypes.CDLL(None).getifaddrs(ctypes.byref(first))
    position = first.value
    while position:
        row = InterfaceRow.from_address(position)
        content, position = ctypes.string_at(row.at, 28 if row.at else 0), row.next  # bytes of the longer family
        family = int.from_bytes(content[:2], sys.byteorder)
        if family in FAMILIES.values():
            name, is_ipv6 = row.name.decode(), family == socket.AF_INET6
            address = socket.inet_ntop(family, content[8:24] if is_ipv6 else content[4:8])
            scope = f"%{name}" if address.startswith("fe80:") else ""
            interfaces.append(Interface(name, address + scope, bool(row.flags & IFF_RUNNING)))
    return interfaces


def socket_interfaces(
    rows: list[Interface], setting: str, nccl: NcclLibrary | None = None, family: str = ""
) -> list[Interface]:
    """Return the interfaces of NCCL's sockets, by its own rule: it starts over the first.

    `setting` and `family` are NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY, "" if unset. NCCL before 2.28 also takes
    interfaces without a link, and those of libvirt as any other; an unknown version follows the newest's rule.
    """
    is_old = nccl is not None and nccl.version < (2, 28, 0)
    rows = [row for row in rows if (is_old or row.is_running) and row.address != "::1"]
    if family in FAMILIES:
        rows = [row for row in rows if (":" in row.address) == (family == "AF_INET6")]
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
        states = dict.fromkeys(name if is_running else f"{name} (down)" for name, _, is_running in rows)
        reason = f"NCCL_SOCKET_IFNAME={setting} fits no interface" if setting else "NCCL finds no interface"
        yield "error", "interface", f"NCCL cannot start: {reason} that is up; this node has {', '.join([*states][:8])}"
    elif nodes > 1 and OTHER_INTERFACE.match(used[0].name):
        # Of others only the name says it: a neighbour that is not reached at its address is an error of its own.
        severity = "error" if used[0].address.startswith("127.") else "warning"
        sentence = f"NCCL will start over {used[0].name} ({used[0].address}), which is not between the nodes"
        yield severity, "interface", f"{sentence}: set NCCL_SOCKET_IFNAME to their own"
