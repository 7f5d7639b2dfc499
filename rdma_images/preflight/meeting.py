"""Let the nodes of a job meet at the first one, tell each other what they are, and reach each other."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Dict

from rdma_images.preflight.devices import Device
from rdma_images.preflight.gpus import gpu_files, nvidia_driver, visible_gpus
from rdma_images.preflight.job_nodes import JobNode
from rdma_images.preflight.system import EFA_DRIVER, Finding, first_line, has_library, node_name, print_line

Message = Dict[str, Any]

# Seconds for all nodes to come, as long as torchrun waits for its nodes: one may pull its image first.
MEETING_SECONDS = 600.0
ANSWER_SECONDS = 300.0  # for nodes that have come: the longest all-reduce and what is between
FIRST_NOTE_SECONDS, NOTE_SECONDS = 10.0, 60.0  # until the nodes that are waited for are named, and named again
CONNECT_SECONDS = 5.0  # for a connection to the neighbour
LARGE_MESSAGE = 1 << 18  # bytes: more than the packets of any MTU
# Settings that decide how nodes and ranks reach each other; not MASTER_ADDR: the first node may call itself localhost.
SHARED_SETTINGS = re.compile(
    r"(NCCL|FI|OFI_NCCL|UCX|NVSHMEM|GLOO)_(?!DEBUG|HOSTID|LOG_)\w+|(PET_)?(MASTER_PORT|NNODES)|WORLD_SIZE"
)
COMPARED_FIELDS = ("driver", "firmware", "link_layer", "rate", "mtu")  # of devices


class PeerMessage(Dict[str, Any]):
    """A message from another node, and each object in it: to ask for a field that it lacks is a ConnectionError."""

    def __missing__(self, field: str) -> None:
        raise ConnectionError(f"another node's message lacks '{field}': does it run the same preflight?")


class Meeting:
    """The meeting of a job's nodes: in its `with` block they have come, and neighbours reach this at `own_address`."""

    def __init__(self, node: JobNode, address: str, port: int) -> None:
        """Take this node's place in the job, the address over which NCCL starts here, and the first node's port."""
        self.node, self.port = node, port
        self.streams: list[Any] = []  # to the other nodes in their order; on these, one to the first node
        family, _, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        self.listener = socket.create_server(place, family=family)
        self.listener.settimeout(0.2)
        self.own_address = list(self.listener.getsockname())
        self.start, self.next_note = time.monotonic(), FIRST_NOTE_SECONDS
        self.is_done = threading.Event()
        self.server = threading.Thread(target=self.answer_neighbours, daemon=True)

    def __enter__(self) -> Meeting:
        self.server.start()
        self.streams = [self.reach_first_node()] if self.node.number else self.await_nodes()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_done.set()
        self.server.join()
        for closable in (self.listener, *self.streams):
            with contextlib.suppress(OSError):
                closable.close()

    def exchange(self, message: Message, answer: Callable[[list[Message]], list[Message]]) -> Message:
        """Give this node's message; return its answer, of those that `answer` makes of all messages on the first node.

        Both are in the order of the nodes. Raises ConnectionError where a node has left.
        """
        if self.node.number:
            write_message(self.streams[0], message)
            return read_message(self.streams[0])
        answers = answer([message] + [read_message(stream) for stream in self.streams])
        for stream, text in zip(self.streams, answers[1:]):
            with contextlib.suppress(OSError):  # one that has left ends the next exchange
                write_message(stream, text)
        return answers[0]

    def nodes_where(self, applies: bool) -> list[str]:
        """Tell the nodes whether something applies to this one; return the names of those to which it does."""
        message = {"name": node_name(), "applies": applies}
        answer = self.exchange(message, lambda rows: [{"names": [r["name"] for r in rows if r["applies"]]}] * len(rows))
        return list(answer["names"])

    def await_nodes(self) -> list[Any]:
        """Return a stream to each other node, in their order."""
        names, streams = {0: node_name()}, {}
        arrivals: list[tuple[int, str, Any]] = []
        is_dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual else socket.AF_INET
        with socket.create_server(("", self.port), family=family, backlog=1024, dualstack_ipv6=is_dual) as server:
            server.settimeout(0.2)
            while len(names) < self.node.nodes:
                missing = sorted(set(range(self.node.nodes)) - set(names))
                self.note_waiting(f"of {self.node.nodes} nodes {missing[:8]} have not come")
                with contextlib.suppress(OSError):
                    threading.Thread(target=read_arrival, args=(server.accept()[0], arrivals), daemon=True).start()
                while arrivals:
                    number, name, stream = arrivals.pop()
                    if number in names or number not in range(self.node.nodes):
                        reason = f"{name} says that it is node {number} of {self.node.nodes}"
                        raise ConnectionError(f"{reason}, as {names.get(number, 'no other')} does")
                    names[number], streams[number] = name, stream
        return [streams[number] for number in sorted(streams)]

    def reach_first_node(self) -> Any:
        """Return a stream to the first node, which may start later than this one."""
        while True:
            try:
                connection = socket.create_connection((self.node.first, self.port), CONNECT_SECONDS)
                break
            except OSError as error:
                reason = describe_connection_error(error)
                self.note_waiting(f"the first node is not reached at {self.node.first}, port {self.port}: {reason}")
                time.sleep(0.5)
        connection.settimeout(MEETING_SECONDS + ANSWER_SECONDS)
        stream = connection.makefile("rwb")
        write_message(stream, {"node": self.node.number, "name": node_name()})
        return stream

    def note_waiting(self, sentence: str) -> None:
        """Print `sentence` when a note is due. Raises ConnectionError with it when the time is over."""
        waited = time.monotonic() - self.start
        if waited > MEETING_SECONDS:
            raise ConnectionError(sentence)
        if waited > self.next_note:
            self.next_note = waited + NOTE_SECONDS
            print_line("note", "nodes", f"{sentence} after {waited:.0f} s; waiting")

    def answer_neighbours(self) -> None:
        """Answer each connection in a thread of its own until the meeting ends: one may say nothing."""
        while not self.is_done.is_set():
            with contextlib.suppress(OSError):
                threading.Thread(target=answer_neighbour, args=self.listener.accept()[:1], daemon=True).start()


def answer_neighbour(connection: socket.socket) -> None:
    """Read a neighbour's message and answer it; the neighbour reports an error."""
    with contextlib.suppress(OSError), connection:
        connection.settimeout(CONNECT_SECONDS)
        while connection.recv(LARGE_MESSAGE):
            pass
        connection.sendall(b"k")


def read_arrival(connection: socket.socket, arrivals: list[tuple[int, str, Any]]) -> None:
    """Add the number, name and stream of a node that has come; ignore other connections, such as port scans."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        connection.settimeout(CONNECT_SECONDS)
        stream = connection.makefile("rwb")
        hello = read_message(stream)
        connection.settimeout(ANSWER_SECONDS)
        arrivals.append((int(hello["node"]), str(hello["name"]), stream))


def write_message(stream: Any, message: Message) -> None:
    """Send a message to another node. Raises OSError where it has left."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def read_message(stream: Any) -> Message:
    """Return another node's message. Raises ConnectionError if it has left, also in the middle of its message."""
    line = b""
    with contextlib.suppress(OSError):
        line = stream.readline()
    if not line.endswith(b"\n"):
        raise ConnectionError("another node has left: its own lines say why")
    try:
        return PeerMessage(json.loads(line, object_hook=PeerMessage))
    except (ValueError, TypeError):
        raise ConnectionError("another node's message is unreadable: does another program use the port?") from None


def check_neighbour(name: str, address: list[Any]) -> Iterator[Finding]:
    """Yield a finding if a node is not reached over NCCL's interface, or gets no message of many packets."""
    reached = f"{name} is not reached at {address[0]}, over which NCCL starts: "
    try:
        with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as connection:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(tuple(address))
            reached = f"{name} is reached, and a message of many packets does not arrive, compare the MTUs: "
            connection.sendall(bytes(LARGE_MESSAGE))
            connection.shutdown(socket.SHUT_WR)
            if not connection.recv(1):
                raise OSError("the connection was closed before it was whole")
    except OSError as error:
        yield "error", "neighbour", reached + describe_connection_error(error)


def describe_connection_error(error: OSError) -> str:
    """Return what a connection's error says, and its likely reason if nothing answered, not even with a refusal."""
    if isinstance(error, (TimeoutError, socket.timeout)) or error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH):
        return f"{error}; a firewall or security group may drop it: NCCL needs all TCP ports between the nodes"
    return str(error)


def shared_facts(root: str, devices: list[Device], nccl: str) -> dict[str, str]:
    """Return the facts that should be the same on all nodes; `devices` are the fabric's that can be used."""
    plugins = (os.environ.get("NCCL_NET_PLUGIN") or "libnccl-net.so").split(",")
    has_plugin = not root and any(has_library(n) or has_library(f"libnccl-net-{n}.so") for n in plugins if n)
    values = {name: ",".join(sorted({getattr(row, name) for row in devices})) for name in COMPARED_FIELDS}
    return {
        **{key: value for key, value in os.environ.items() if SHARED_SETTINGS.fullmatch(key)},
        **{f"{name} of RDMA devices": value for name, value in values.items()},
        "number of usable RDMA devices": str(len(devices)),
        "number of GPUs": str(visible_gpus(len(gpu_files(root)))),
        "NVIDIA driver": nvidia_driver(root),
        "NCCL": nccl,
        "NCCL's network plugin": "found" if has_plugin else "not found",
        "EFA driver": first_line(root + EFA_DRIVER),
    }


def describe_differences(nodes: list[Message]) -> list[str]:
    """Return a sentence for each of the `facts` in which nodes differ, with its values and their nodes."""
    sentences = []
    for fact in sorted({fact for node in nodes for fact in node["facts"]}):
        by_value: dict[str, list[str]] = {}
        for node in nodes:
            by_value.setdefault(str(node["facts"].get(fact) or "nothing"), []).append(node["name"])
        if len(by_value) > 1:
            ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
            places = [f"{value} on {', '.join(names[:4])}" for value, names in ordered[:4]]
            sentences.append(f"{fact} differs: {'; '.join(places)}")
    return sentences
