"""Check that each RoCE adapter reaches the neighbour's of the same rail."""

from __future__ import annotations

import os
import select
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.rdma_devices import Device


RAILS_SECONDS = 2.0  # seconds for all connections between adapters


class Rail(NamedTuple):
    """A RoCE device, the network interface of it, and that one's IPv4 address."""

    device: str
    interface: str
    address: str


def rails(devices: list[Device]) -> list[Rail]:
    """Return the RoCE devices whose interface has an IPv4 address here."""
    rows = []
    for device in devices:
        mapped = [gid.ipv4_mapped for _, gid, kind in device.gids if "v2" in kind and gid.ipv4_mapped]
        if device.usable and device.interface and mapped:
            rows.append(Rail(device.name, device.interface, str(mapped[0])))
    return rows


def rail_listener(rail: Rail) -> socket.socket:
    """Return a listener that takes connections over the rail's own interface alone."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, rail.interface.encode())
    listener.bind((rail.address, 0))
    listener.listen()
    return listener


def reached_rails(local_rails: list[Rail], peer_rails: list[list[Any]]) -> set[tuple[int, int]]:
    """Return the pairs of our and the neighbour's adapters, by position, that connect."""
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
    """Yield adapters that do not reach the peer's at their position, or its others."""
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
            sentence = "%s reaches %s of %s and not %s: rails are apart, set NCCL_CROSS_NIC=0"
            yield "warning", "rails", sentence % (device, peer_device, peer, unreached[0])
            return
