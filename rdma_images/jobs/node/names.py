"""Check that nodes' names lead to them, and that the ranks' port is free."""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import socket
import threading
from typing import TYPE_CHECKING, Any

from rdma_images.jobs.node.interfaces import interface_network, is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.interfaces import Interface

NAME_SECONDS = 3.0  # seconds for a name to be resolved


def call_resolver(function: Callable[[str], Any], name: str) -> str | None:
    """Call a function of the resolver: "" for its error, None for no answer in time."""
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
    """Return the IPv4 address of a name; "" for none, None for no answer in time."""
    return call_resolver(socket.gethostbyname, name)


@functools.lru_cache
def first_address(name: str) -> str | None:
    """Return the address of a name that Gloo takes, of IPv4 or IPv6.

    Returns:
        "" for none, None for no answer in time.
    """
    return call_resolver(lambda text: socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)[0][4][0], name)


def check_full_name() -> Iterator[Finding]:
    """Yield a full name of this node without an address: torchrun gives it to ranks."""
    name = call_resolver(socket.getfqdn, socket.gethostname())
    if name and name != socket.gethostname() and call_resolver(lambda text: socket.getaddrinfo(text, None), name) == "":
        sentence = (
            "%s, this node's full name, has no address here, and torchrun gives it to ranks with --standalone or "
            "--rdzv-backend=c10d: correct /etc/hosts or DNS, or write --local-addr"
        )
        yield "warning", "names", sentence % name


def check_names(rows: list[Interface], nodes: int, rank: int, master: str) -> Iterator[Finding]:
    """Yield a name of this node or of the first one that leads to another place.

    `rows` are the node's interfaces.
    """
    if nodes < 2:
        return
    hostname, addresses = socket.gethostname(), {row.address for row in rows}
    if not os.environ.get("GLOO_SOCKET_IFNAME"):  # else Gloo asks for no name
        address = first_address(hostname)
        if address is None:
            yield "warning", "names", "%s, this node's name, is not resolved within %d s" % (hostname, NAME_SECONDS)
        elif not address:
            yield "warning", "names", "%s, this node's name, has no address here: Gloo announces it" % hostname
        elif address.startswith(("127.", "::1")):
            advice = "Gloo announces it to the other nodes: correct /etc/hosts, or set GLOO_SOCKET_IFNAME"
            yield "warning", "names", "%s, this node's name, is %s here, and %s" % (hostname, address, advice)
        elif ":" not in address and address not in addresses:
            yield "warning", "names", "%s, this node's name, is %s here, which no interface has" % (hostname, address)
    is_name = bool(master) and not re.fullmatch(r"[\d.]+|.*:.*", master)
    if rank and is_name and (resolve(master) or "").startswith("127."):
        advice = "name the first node in it" if master == "localhost" else "correct /etc/hosts"
        yield "warning", "names", "MASTER_ADDR, %s, leads to this node itself: %s" % (master, advice)


def check_comm_id(rows: list[Interface], rank: int, setting: str) -> Iterator[Finding]:
    """Yield an address of NCCL_COMM_ID over which NCCL cannot start here (src/bootstrap.cc).

    Every rank takes an interface in the network of this address, and rank 0 listens at it.

    Args:
        rows: The node's interfaces.
        rank: Its number in the job.
        setting: The value of NCCL_COMM_ID, "" where it is not set.
    """
    host = setting.rpartition(":")[0]
    address = resolve(host) if host and not host.startswith("[") else None
    if address is None:  # none is set, it is one of IPv6, or no answer came in time
        return
    if not address:
        yield "error", "names", "NCCL_COMM_ID=%s: %s is not resolved here" % (setting, host)
    elif not any(ipaddress.IPv4Address(address) in interface_network(row) for row in rows):
        sentence = (
            "no interface here is in the network of this address: leave it out, or take one of the nodes' network"
        )
        yield "error", "interface", "NCCL_COMM_ID=%s: %s" % (setting, sentence)
    elif rank == 0 and not is_local(address):
        yield "error", "interface", "NCCL_COMM_ID=%s is no address of this node, where rank 0 listens at it" % setting


def check_port(rank: int, setting: str, nodes: int = 1, fixed: int = 0) -> Iterator[Finding]:
    """Yield a port where no ranks can meet: none, or one in use on the first node.

    Args:
        rank: This node's number in the job.
        setting: The value of MASTER_PORT, "" where it is not set.
        nodes: Number of the job's nodes.
        fixed: The port that the job's launcher takes, whatever MASTER_PORT is; 0 where it takes that one.
    """
    name = "port %d, where the ranks meet," % fixed if fixed else "MASTER_PORT=%s" % setting
    number = fixed or (int(setting) if setting.isdigit() and setting.isascii() else -1)
    if setting and not 0 <= number < 1 << 16:
        yield "warning", "port", "%s is no port: a number from 1 to 65535" % name
    elif number == 0 and nodes > 1:
        yield "warning", "port", "%s lets each node take another free port, so that no ranks meet: name one port" % name
    if rank or not 0 < number < 1 << 16:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", number))
        except PermissionError:
            return
        except OSError:
            yield "warning", "port", "%s is in use here: an earlier job or another one still runs" % name
