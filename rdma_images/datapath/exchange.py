"""Run one exchange between the two guests: a server, a client, and what shows that the data went over RDMA."""

import re
from dataclasses import dataclass
from typing import Literal

from rdma_images.core.check import Check
from rdma_images.datapath.checks import CheckDefinition, fail_check, pass_check
from rdma_images.datapath.guest import Guest, TaskResult
from rdma_images.datapath.guests import ADDRESSES, TwoGuests

# Packets that the emulated adapter has sent and received.
COUNTERS = "cd /image/sys/class/infiniband/rxe0/ports/1/hw_counters && cat sent_pkts rcvd_pkts"

LISTENING = {
    "tcp": "netstat -ltn | grep -q ':{port} '",
    "cm": "rdma resource show cm_id | grep -q LISTEN",  # of RDMA-CM; the kernel writes no port of a wildcard address
}

# What the tools say, with a good exit status or not, when a byte is not the one that was sent.
WRONG_DATA = re.compile(r"invalid data|data mismatch|data corruption|integrity check failed", re.IGNORECASE)

# What a tool says after packets were lost for half a second, and what is said of one that waits for the other for ever.
LOST = re.compile(r"retry counter exceeded|status:? 12\b|stopped at its time limit")


@dataclass(frozen=True)
class Exchange:
    """The programs of an exchange, and the output that shows its success.

    `server` runs in the first guest; `client` in the second, once the first listens; "{server}" is its address.
    """

    subject: CheckDefinition  # its `expected` says what is exchanged
    tool: str
    server: str
    client: str
    listens: tuple[Literal["tcp", "cm"], int]  # and the port
    rdma: bool = True  # the data must go through the adapter; without, it must not
    seconds: float = 20.0  # at most, for each side


def perform(guests: TwoGuests, exchange: Exchange) -> Check:
    """Run an exchange between the guests, and return the check of its result.

    It is repeated once where packets were lost: a busy machine stops an emulated guest for longer than an adapter sends
    again, and a fault of the image shows each time.
    """
    fault = _attempt(guests, exchange)
    if LOST.search(fault):
        fault = _attempt(guests, exchange)
    if fault:
        return fail_check(exchange.subject, fault)
    origin = "the image's" if guests.rdma_files.is_from_image(exchange.tool) else "an outside"
    return pass_check(exchange.subject, f"{exchange.subject.expected}, with {origin} {exchange.tool}")


def _attempt(guests: TwoGuests, exchange: Exchange) -> str:
    """Run the exchange and return why it failed, in one line; empty where it passed."""
    packets_before = packets(guests.server)
    server, client = _run_both_sides(guests, exchange)
    return find_fault(exchange, server, client, packets(guests.server) - packets_before)


def packets(guest: Guest) -> int:
    """Return how many packets the guest's adapter has sent and received since it was added."""
    return sum(int(line) for line in guest.run(COUNTERS, 5).output.split())


def _run_both_sides(guests: TwoGuests, exchange: Exchange) -> tuple[TaskResult, TaskResult | None]:
    """Return how server and client ended; the client is None where the server never listened."""
    kind, port = exchange.listens
    server = guests.server.start(guests.session.script(exchange.server), exchange.seconds)
    listening = LISTENING[kind].format(port=port)
    # A server that ended, with an error, will never listen.
    waiting = f"until {listening}; do [ ! -e /task/{server}.done ] || exit 1; sleep 0.1; done"
    client = None
    if guests.server.run(waiting, exchange.seconds).status == 0:
        command = exchange.client.format(server=ADDRESSES[0])
        client = guests.client.run(guests.session.script(command), exchange.seconds)
    return guests.server.wait_for_result(server, exchange.seconds), client


def find_fault(exchange: Exchange, server: TaskResult, client: TaskResult | None, packet_count: int) -> str:
    """Return why the exchange failed, in one line; empty where it passed."""
    outputs = {side: result for side, result in (("server", server), ("client", client)) if result}
    for side, result in outputs.items():
        if match := WRONG_DATA.search(result.output):
            return f"the {side} received other data than was sent: {match[0]!r}"
    # Where both failed, either can have failed because the other did.
    if failures := [f"the {side} {_describe_result(result)}" for side, result in outputs.items() if result.status]:
        return "; ".join(failures)
    if client is None:
        return "the server ended before a client came"
    if exchange.rdma and not packet_count:
        return "the exchange succeeded, but no packet went through the RDMA adapter"
    if packet_count and not exchange.rdma:
        return f"the control went through the RDMA adapter ({packet_count} packets)"
    return ""


def _describe_result(result: TaskResult) -> str:
    """Return how a program ended, its last lines and lost packets, on one line."""
    side = "was stopped at its time limit" if result.status == 137 else f"ended with status {result.status}"
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    relevant = dict.fromkeys((*filter(LOST.search, lines), *lines[-2:]))
    return f"{side}: {' / '.join(relevant) or 'it said nothing'}"
