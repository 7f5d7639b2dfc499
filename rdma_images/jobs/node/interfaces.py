"""Check the interfaces of NCCL's sockets, which it chooses by the rule of its version."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import re
import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from rdma_images.jobs.node.system import first_line, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.system import Version


OWN_SECONDS = 3.0  # seconds for a connection within this node
OUTSIDE = ("8.8.8.8", 80)  # whose route vLLM, SGLang and Ray ask the kernel for; nothing is sent there
PROXY_PORTS = {"3A99", "3A9E"}  # 15001 and 15006, where Istio's proxy takes what its pod sends and gets
TCP_LISTEN = "0A"  # in /proc/net/tcp
IFF_RUNNING = 0x40  # include/uapi/linux/if.h
# Interfaces of containers and virtual machines by the names that Docker, libvirt, CNI, Podman and LXC give them.
NODE_LOCAL_INTERFACE = re.compile(
    r"lo|docker|virbr|veth|cni|pod-id-link|flannel|cali|podman|lxcbr|lxdbr|nerdctl|br-[\da-f]{12}$"
)
VPN_INTERFACE = re.compile(r"tailscale|wg\d|tun\d|zt\w{8}")  # Tailscale, WireGuard, OpenVPN, ZeroTier


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


def network_identity() -> str:
    """Return what processes with the same interfaces share: boot and network namespace.

    Returns:
        "" where a sandbox shows neither: the first namespace of each host has the same number.
    """
    boot = first_line("/proc/sys/kernel/random/boot_id")
    try:
        return "%s %d" % (boot, os.stat("/proc/self/ns/net").st_ino) if boot else ""
    except OSError:
        return ""


def interface_network(interface: Interface) -> ipaddress.IPv4Network:
    """Return the network of an interface's IPv4 address. Raises OSError if it is gone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), 0x891B, struct.pack("256s", interface.name.encode()))  # SIOCGIFNETMASK
    mask = socket.inet_ntoa(answer[20:24])
    return ipaddress.IPv4Network("%s/%s" % (interface.address, mask), strict=False)


def is_in_local_network(address: str) -> bool:
    """Return whether an interface here is in an address' network; True for no IPv4 address."""
    try:
        return any(ipaddress.IPv4Address(address) in interface_network(row) for row in read_interfaces())
    except (OSError, ValueError):
        return True


def socket_interfaces(rows: list[Interface], setting: str, nccl: Version | None = None) -> list[Interface]:
    """Return the interfaces of NCCL's sockets, by its own rule: it starts over the first.

    `setting` is the value of NCCL_SOCKET_IFNAME, "" where it is not set. NCCL before 2.28 takes interfaces without a
    link, too, and those of libvirt as any other; of one that is not known the newest's rule is taken.
    """
    is_old = nccl is not None and nccl < (2, 28, 0)
    rows = [row for row in rows if is_old or row.is_running]
    if len(setting) > 1:
        is_excluded, is_exact = setting.startswith("^"), setting.lstrip("^").startswith("=")
        patterns = setting.lstrip("^").lstrip("=").split(",")

        def matches(name: str) -> bool:
            return any(name == pattern if is_exact else name.startswith(pattern) for pattern in patterns if pattern)

        return [row for row in rows if matches(row.name) != is_excluded]
    choices = (
        [row for row in rows if row.name.startswith("ib")],
        [row for row in rows if not row.name.startswith(("lo", "docker") if is_old else ("lo", "docker", "virbr"))],
        [row for row in rows if row.name.startswith("docker")],
        rows,
    )
    return next((choice for choice in choices if choice), [])


def bootstrap_interface(rows: list[Interface], setting: str, nccl: Version | None = None) -> Interface | None:
    """Return the interface that NCCL starts over; None where there is none."""
    return next(iter(socket_interfaces(rows, setting, nccl)), None)


def ipv6_interfaces(root: str) -> list[tuple[str, ipaddress.IPv6Address]]:
    """Return the interfaces with IPv6 addresses but the loopback, by /proc/net/if_inet6."""
    rows = [line.split() for line in read_file(root + "/proc/net/if_inet6").splitlines()]
    return [(row[5], ipaddress.IPv6Address(int(row[0], 16))) for row in rows if len(row) > 5 and row[5] != "lo"]


def check_ipv6(
    rows: list[Interface], ipv6_rows: list[tuple[str, ipaddress.IPv6Address]], setting: str, family: str
) -> Iterator[Finding]:
    """Yield node-local interfaces that NCCL's sockets use for their IPv6 address.

    Args:
        rows: The node's interfaces with an IPv4 address.
        ipv6_rows: Those with an IPv6 address.
        setting: The value of NCCL_SOCKET_IFNAME, "" where it is not set.
        family: That of NCCL_SOCKET_FAMILY.
    """
    if family == "AF_INET6" and not ipv6_rows:
        yield "error", "interface", "NCCL_SOCKET_FAMILY=AF_INET6, and no interface has an address of IPv6"
    names = {row.name for row in rows}
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
        sentence = "NCCL's sockets use %s, too, which other nodes do not reach: set NCCL_SOCKET_IFNAME%s"
        yield "warning", "interface", sentence % (", ".join(local[:4]), "=" + interface.name if interface else "")


def announced_address() -> str:
    """Return the address that vLLM, SGLang and Ray announce.

    Returns:
        "" for none.
    """
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
    """Yield a finding if the kernel sends to NCCL's network over another interface."""
    rows = [row.split() for row in read_file(root + "/proc/net/route").splitlines()[1:]]
    routes = [(row[0], row[1], row[7], int(row[6])) for row in rows if len(row) > 7 and row[1] != "00000000"]
    for name, network, mask, _ in routes:
        if chosen is None or name != chosen.name:
            continue
        # Of equal metrics the first, as the kernel has it.
        first = min((row for row in routes if row[1:3] == (network, mask)), key=lambda row: row[3])
        if first[0] != name:
            sentence = "NCCL starts over %s, and the kernel sends to its network over %s: give each its own network"
            yield "warning", "route", sentence % (name, first[0])


def check_proxy(root: str, nodes: int) -> Iterator[Finding]:
    """Yield a finding if a service mesh takes the connections of this pod."""
    rows = [
        row.split() for row in (read_file(root + "/proc/net/tcp") + read_file(root + "/proc/net/tcp6")).splitlines()
    ]
    ports = {row[1].rpartition(":")[2] for row in rows if len(row) > 3 and row[3] == TCP_LISTEN}
    if nodes > 1 and ports >= PROXY_PORTS:
        sentence = "Istio's proxy takes NCCL's connections of this pod: label the pods sidecar.istio.io/inject: 'false'"
        yield "warning", "proxy", sentence


def check_gloo_names(setting: str) -> Iterator[Finding]:
    """Yield names in GLOO_SOCKET_IFNAME that no interface has: Gloo reads no patterns."""
    present = [name for _, name in socket.if_nameindex()]
    missing = [name for name in setting.split(",") if name not in present]
    if setting and missing:
        sentence = "GLOO_SOCKET_IFNAME=%s: no interface here is %s, and Gloo takes whole names alone: %s are here"
        yield "warning", "interface", sentence % (setting, missing[0], ", ".join(present[:8]))


def check_own_address(chosen: Interface | None) -> Iterator[Finding]:
    """Yield a finding if this node does not reach its own address of NCCL's start."""
    if chosen is None:
        return
    try:
        with socket.create_server((chosen.address, 0)) as server:
            socket.create_connection(server.getsockname(), OWN_SECONDS).close()
    except OSError as error:
        sentence = (
            "this node does not reach its own address %s of %s, over which NCCL starts (%s): a firewall or a route of "
            "the node takes it, or set NCCL_SOCKET_IFNAME to another"
        )
        yield "error", "interface", sentence % (chosen.address, chosen.name, error)


def check_bootstrap(rows: list[Interface], chosen: Interface | None, setting: str, nodes: int) -> Iterator[Finding]:
    """Yield why NCCL cannot start over the interface that it will choose.

    Args:
        rows: The node's interfaces.
        chosen: The one that NCCL will choose; None where there is none.
        setting: The value of NCCL_SOCKET_IFNAME.
        nodes: Number of the job's nodes.
    """
    if chosen is None:
        states = ", ".join("%s%s" % (name, "" if is_running else " (down)") for name, _, is_running in rows[:8])
        if setting:
            yield "error", "interface", "NCCL_SOCKET_IFNAME=%s fits no interface that is up: %s" % (setting, states)
        else:
            yield "error", "interface", "no interface with an IPv4 address is up, and NCCL cannot start: %s" % states
    elif nodes > 1 and NODE_LOCAL_INTERFACE.match(chosen.name):
        # Of others only the name says it: a neighbour that is not reached at its address is an error of its own.
        severity = "error" if chosen.address.startswith("127.") else "warning"
        advice = "set NCCL_SOCKET_IFNAME to the nodes' own"
        sentence = "NCCL will start over %s (%s), which other nodes do not reach: %s" % (
            chosen.name,
            chosen.address,
            advice,
        )
        yield severity, "interface", sentence
    elif nodes > 1 and not setting and VPN_INTERFACE.match(chosen.name):
        sentence = "NCCL will start over %s (%s), a VPN's: set NCCL_SOCKET_IFNAME to the nodes' own" % (
            chosen.name,
            chosen.address,
        )
        yield "warning", "interface", sentence


def is_local(address: str) -> bool:
    """Return whether an IPv4 address is one of this node."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, OUTSIDE[1]))  # nothing is sent: the kernel chooses the address to send from
        except OSError:
            return False
        return bool(probe.getsockname()[0] == address)


def check_shared_addresses(
    local_rows: Sequence[Sequence[Any]], name: str, peer_rows: Sequence[Sequence[Any]], address: str
) -> Iterator[Finding]:
    """Yield interfaces of NCCL's sockets whose addresses a neighbour has, too.

    A rank that connects to such an address, as of Docker's bridges, reaches its own node.

    Args:
        local_rows: The interfaces of this node that NCCL's sockets use.
        name: The neighbour's.
        peer_rows: Those of the neighbour.
        address: The neighbour's, over which NCCL starts.
    """
    peer_addresses = {row[1] for row in peer_rows}
    if any(row[1] == address for row in local_rows):
        sentence = (
            "NCCL starts over %s here and on %s, too: it is no address between nodes, as of a container's own network: "
            "start the containers with the host's (--network=host), or set NCCL_SOCKET_IFNAME"
        )
        yield "error", "interface", sentence % (address, name)
        return
    shared = ["%s (%s)" % (row[0], row[1]) for row in local_rows if row[1] in peer_addresses]
    if shared:
        interface = next((row[0] for row in peer_rows if row[1] == address), "")
        sentence = "NCCL's sockets use %s, too, and %s has the same addresses: set NCCL_SOCKET_IFNAME=%s"
        yield "warning", "interface", sentence % (", ".join(shared[:4]), name, interface)
