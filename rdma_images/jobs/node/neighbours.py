"""Let the nodes of a job meet, reach each other, and compare what should be the same."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import re
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from rdma_images.jobs.node.finding import NODE_CHECK, print_finding
from rdma_images.jobs.node.interfaces import announced_address, check_shared_addresses, is_in_local_network, is_local
from rdma_images.jobs.node.names import first_address, resolve
from rdma_images.jobs.node.rails import check_rails, rail_listener
from rdma_images.jobs.node.rdma_devices import PARTITION
from rdma_images.jobs.node.system import first_line, has_library, read_file, torch_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rdma_images.jobs.node.finding import Finding
    from rdma_images.jobs.node.rails import Rail
    from rdma_images.jobs.node.rdma_devices import Device
    from rdma_images.jobs.node.system import Version

    Facts = dict[str, Any]

PORT = 29499  # where the nodes meet at the first one, beside torchrun's
# Seconds for all nodes to come there, as long as torchrun waits for its nodes: one may pull its image first.
MEETING_SECONDS = 600.0
NOTE_SECONDS = 10.0  # seconds after which the nodes that are waited for are named
REPEAT_SECONDS = 60.0  # seconds after which they are named again
LEAVING_SECONDS = 10.0  # seconds for the neighbour to come after that
IDLE_SECONDS = 2.0  # seconds without a connection, after which the neighbour needs no more
CONNECT_SECONDS = 5.0  # seconds for a connection to the neighbour
LARGE_MESSAGE = 1 << 18  # bytes: more than the packets of any MTU
MAX_CLOCK_SECONDS = 30.0  # seconds between clocks, after which tickets and certificates are refused
# What the nodes tell each other beside the facts that should be the same on all of them.
MEETING_FACTS = {"node", "address", "announced", "interfaces", "network", "rank", "rails", "clock", "seconds ahead"}
# Settings that decide how nodes and ranks reach each other, and should be the same on all nodes. MASTER_ADDR need not:
# the first node may call itself localhost.
SHARED_SETTINGS = re.compile(
    r"(NCCL|FI|OFI_NCCL|UCX|UCCL|NVSHMEM|GLOO)_(?!DEBUG|HOSTID|LOG_)\w+|(PET_)?(MASTER_PORT|NNODES)|WORLD_SIZE"
)


def describe_connection_error(error: OSError, address: str) -> str:
    """Return what a connection's error says, and its likely reason if nothing answered.

    A port on which nothing listens is refused at once: only what drops packets leaves a connection without an answer.
    """
    if not isinstance(error, (TimeoutError, socket.timeout)) and error.errno not in (
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
    ):
        return str(error)
    if not is_in_local_network(address):
        return (
            "%s; %s is in no network of this node's interfaces: name the address in the network that the nodes share, "
            "or let a route and the firewalls between both networks pass all TCP ports" % (error, address)
        )
    return "%s; a firewall or security group may drop it, and NCCL and Gloo need all TCP ports between nodes" % error


class UnreachedNodeError(OSError):
    """The nodes do not meet: one did not come, or does not reach the first."""


class UnresolvedNameError(OSError):
    """The first node's name has no address on this node."""


class Meeting:
    """The meeting of a job's nodes at the first one, which compares them.

    Within its `with` block this node can be reached by its neighbour, for which the end of the block waits.
    """

    def __init__(
        self, facts: Facts, address: str, nodes: int, rank: int, master: str, local_rails: Sequence[Rail] = ()
    ) -> None:
        self.facts, self.address, self.nodes, self.rank, self.master = facts, address, nodes, rank, master
        self.local_rails = local_rails
        self.rails: list[Rail] = []  # those of `local_rails` that the neighbour can reach
        self.listeners: list[socket.socket] = []
        self.is_done, self.serve_until = threading.Event(), 0.0
        self.server = threading.Thread(target=self.answer_connections, daemon=True)

    def __enter__(self) -> Meeting:
        self.facts.update(address=self.listen(socket.create_server((self.address, 0))), announced=None, rails=[])
        announced = announced_address()
        if announced not in ("", self.address) and not announced.startswith("127."):
            # Where it is no address of this node, check_names reports it if it matters.
            with contextlib.suppress(OSError):
                self.facts["announced"] = self.listen(socket.create_server((announced, 0)))
        for rail in self.local_rails:
            with contextlib.suppress(OSError):  # the address is another network namespace's
                self.facts["rails"].append((rail.device, *self.listen(rail_listener(rail))))
                self.rails.append(rail)
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.serve_until = time.monotonic() + LEAVING_SECONDS
        self.is_done.set()
        self.server.join()
        for listener in self.listeners:
            listener.close()

    def listen(self, listener: socket.socket) -> tuple[str, int]:
        """Answer the connections to a listening socket, and return its address."""
        self.listeners.append(listener)
        host, port = listener.getsockname()
        return host, port

    def findings(self) -> Iterator[Finding]:
        """Yield a neighbour that is not reached, and what differs between nodes."""
        try:
            answer = self.collect_facts() if self.rank == 0 else self.report_facts()
        except UnresolvedNameError as error:
            yield "error", "names", str(error)
            return
        except UnreachedNodeError as error:
            yield "error", "neighbour", str(error)
            return
        except (OSError, ValueError) as error:
            yield "warning", "neighbours", "not compared with the other nodes: %s" % error
            return
        for sentence in answer["differences"]:
            yield "warning", "differences", sentence
        if answer.get("torch") and not self.facts.get("torch"):
            sentence = "this node's python3 has no torch, and %s: run the same image on all nodes"
            yield "error", "torch", sentence % answer["torch"]
        name, address, peer_rails, announced = answer["neighbour"]
        yield from check_neighbour(name, address, announced)
        # Of one host's network, as of two tasks of Slurm there, the addresses are the same, and reached.
        is_same_network = bool(answer.get("network")) and answer["network"] == self.facts["network"]
        if self.facts.get("number of usable RDMA devices") == "0" and not is_same_network:
            yield from check_shared_addresses(self.facts["interfaces"], name, answer["interfaces"], address[0])
        yield from check_rails(self.rails, name, peer_rails)

    def collect_facts(self) -> Facts:
        """Collect the facts of all nodes, send each its answer, and return this node's."""
        present: dict[int, tuple[socket.socket | None, Facts]] = {0: (None, self.facts)}
        start, note_at = time.monotonic(), NOTE_SECONDS
        with socket.create_server(("", PORT), reuse_port=False, backlog=1024) as server:
            server.settimeout(0.2)
            while len(present) < self.nodes:
                waited = time.monotonic() - start
                if waited > MEETING_SECONDS:
                    raise UnreachedNodeError(self.describe_missing(set(present), waited))
                if waited > note_at:
                    note_at = waited + REPEAT_SECONDS
                    print_finding(
                        NODE_CHECK, "note", "neighbours", self.describe_missing(set(present), waited) + "; waiting"
                    )
                try:
                    connection = server.accept()[0]
                except OSError:
                    continue
                message = read_facts(connection)
                if message is None:
                    connection.close()
                    continue
                if message["rank"] not in range(self.nodes):
                    raise UnreachedNodeError(
                        "%s says that it is node %s of %d" % (message["node"], message["rank"], self.nodes)
                    )
                earlier = present.get(message["rank"], (None, message))[1]
                if earlier.get("node") != message.get("node"):
                    raise UnreachedNodeError(
                        "%s and %s both say that they are node %d"
                        % (earlier.get("node"), message.get("node"), message["rank"])
                    )
                message["seconds ahead"] = message["clock"] - time.time()
                present[message["rank"]] = (connection, message)
        answers = answer_nodes([present[rank][1] for rank in range(self.nodes)])
        for rank, (peer, _) in present.items():
            if peer:
                peer.sendall(json.dumps(answers[rank]).encode() + b"\n")
                peer.close()
        return answers[0]

    def describe_missing(self, present: set[int], waited: float) -> str:
        """Return which nodes did not come in `waited` seconds, and whether two are the first."""
        missing = sorted(set(range(self.nodes)) - present)[:8]
        sentence = "of %d nodes %s did not come in %d s" % (self.nodes, missing, waited)
        address = resolve(self.master)
        if len(present) > 1 or not address or address.startswith("127.") or is_local(address):
            return sentence
        name = self.master if self.master == address else "%s (%s)" % (self.master, address)
        number = "this node has the number 0, and MASTER_ADDR, %s, is not its address: give each node its number" % name
        return sentence + "; " + number

    def report_facts(self) -> Facts:
        """Send this node's facts to the first node, and return its answer."""
        start, note_at = time.monotonic(), NOTE_SECONDS
        while True:
            try:
                connection = socket.create_connection((self.master, PORT), CONNECT_SECONDS)
                break
            except OSError as error:
                waited = time.monotonic() - start
                if waited > note_at:
                    note_at = waited + REPEAT_SECONDS
                    state = "not resolved here" if isinstance(error, socket.gaierror) else "not reached"
                    sentence = "the first node, %s, is %s so far: %s" % (self.master, state, error)
                    print_finding(NODE_CHECK, "note", "neighbours", sentence)
                if waited > MEETING_SECONDS:
                    if isinstance(error, socket.gaierror):
                        raise UnresolvedNameError(
                            "the name of the first node, %s, is not resolved here (%s): no rank will meet the first"
                            % (self.master, error.strerror)
                        ) from None
                    reason = describe_connection_error(error, resolve(self.master) or self.master)
                    raise UnreachedNodeError(
                        "the first node is not reached at %s: %s" % (self.master, reason)
                    ) from None
                time.sleep(0.5)
        with connection:
            connection.settimeout(MEETING_SECONDS + CONNECT_SECONDS)
            connection.sendall(json.dumps(dict(self.facts, rank=self.rank, clock=time.time())).encode() + b"\n")
            line = connection.makefile().readline()
        if not line:
            raise UnreachedNodeError(
                "the first node closed the connection without an answer, as when not all nodes came"
            )
        answer: Facts = json.loads(line)
        return answer

    def answer_connections(self) -> None:
        """Answer each connection whose message is whole, until none has come for a while.

        Something that scans ports comes again and again, so that the end has a limit.
        """
        while True:
            ready = select.select(self.listeners, [], [], IDLE_SECONDS)[0]
            if self.is_done.is_set() and (not ready or time.monotonic() > self.serve_until):
                return
            for listener in ready:
                with listener.accept()[0] as connection:
                    connection.settimeout(CONNECT_SECONDS)
                    try:
                        while connection.recv(LARGE_MESSAGE):
                            pass
                        connection.sendall(b"k")
                    except OSError:  # the other end says what it has seen
                        continue


def read_facts(connection: socket.socket) -> Facts | None:
    """Return the facts that a node sends; None for another connection, as of a scanner."""
    connection.settimeout(CONNECT_SECONDS)
    try:
        message = json.loads(connection.makefile().readline())
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) and "rank" in message and "clock" in message else None


def answer_nodes(nodes: list[Facts]) -> list[Facts]:
    """Return the first node's answers to all nodes, by their facts in the same order."""
    differences = describe_differences(nodes)
    differences += [
        "the clock of %s is %.0f s off" % (facts["node"], facts["seconds ahead"])
        for facts in nodes
        if abs(facts.get("seconds ahead", 0.0)) > MAX_CLOCK_SECONDS
    ]
    answers = []
    for rank in range(len(nodes)):
        neighbour = nodes[(rank + 1) % len(nodes)]
        answers.append(
            {
                "neighbour": (neighbour["node"], neighbour["address"], neighbour["rails"], neighbour["announced"]),
                "interfaces": neighbour.get("interfaces", []),
                "network": neighbour.get("network", ""),
                "differences": differences if rank == 0 else [],
                "torch": next(("%s has %s" % (node["node"], node["torch"]) for node in nodes if node.get("torch")), ""),
            }
        )
    return answers


def check_neighbour(name: str, address: Sequence[Any], announced: Sequence[Any] | None) -> Iterator[Finding]:
    """Yield a finding if a node is not reached, or gets no message of many packets.

    Args:
        name: The node.
        address: Its address and port, over which NCCL starts.
        announced: Those that vLLM, SGLang and Ray announce there; None where they are no others.
    """
    try:
        connection = socket.create_connection((address[0], address[1]), CONNECT_SECONDS)
    except OSError as error:
        reason = describe_connection_error(error, address[0])
        yield "error", "neighbour", "%s is not reached at %s, over which NCCL starts: %s" % (name, address[0], reason)
    else:
        yield from check_large_message(connection, name)
    if announced:
        try:
            socket.create_connection((announced[0], announced[1]), CONNECT_SECONDS).close()
        except OSError as error:
            sentence = (
                "%s is not reached at %s, which vLLM, SGLang and Ray announce there (%s): set VLLM_HOST_IP, "
                "SGLANG_HOST_IP or --node-ip-address to %s"
            )
            yield "warning", "neighbour", sentence % (name, announced[0], error, address[0])


def check_large_message(connection: socket.socket, name: str) -> Iterator[Finding]:
    """Yield a finding if a message of many packets does not arrive, where a connection does."""
    with connection:
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.sendall(bytes(LARGE_MESSAGE))
            connection.shutdown(socket.SHUT_WR)
            if not connection.recv(1):
                raise OSError("the connection was closed before it was whole")
        except OSError as error:
            sentence = (
                "%s is reached, and a message of %d KiB does not arrive (%s): compare the MTU of both nodes and of the "
                "network between them, as with ping -M do -s 8972"
            )
            yield "error", "neighbour", sentence % (name, LARGE_MESSAGE >> 10, error)


def describe_differences(nodes: list[Facts]) -> list[str]:
    """Return a sentence for each fact in which nodes differ, with its values and their nodes."""
    sentences = []
    for name in sorted({name for node in nodes for name in node} - MEETING_FACTS):
        by_value: dict[str, list[str]] = {}
        for node in nodes:
            by_value.setdefault(str(node.get(name) or "nothing"), []).append(node["node"])
        if len(by_value) > 1:
            ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
            deviations = "; ".join("%s on %s" % (value, ", ".join(names[:4])) for value, names in ordered[1:4])
            sentences.append(
                "%s differs: %s on %d of %d nodes; %s"
                % (name, ordered[0][0], len(ordered[0][1]), len(nodes), deviations)
            )
    return sentences


def join_distinct(values: Iterable[str]) -> str:
    """Return the different ones of some values, in their order and with commas."""
    return ",".join(sorted(set(values)))


def node_facts(root: str, devices: list[Device], name: str, nccl: Version | None = None) -> Facts:
    """Return the facts that should be the same on all nodes of a job."""
    driver = re.search(r"\s(\d+\.\d+[.\d]*)\s", first_line(root + "/proc/driver/nvidia/version"))
    plugin = os.environ.get("NCCL_NET_PLUGIN", "")
    has_plugin = not root and has_library(plugin if plugin.endswith(".so") else "libnccl-net.so")
    models = [read_file(path) for path in glob.glob(root + "/proc/driver/nvidia/gpus/*/information")]
    usable = [device for device in devices if device.usable]
    routed = [str(index) for device in usable for index, gid, kind in device.gids if "v2" in kind and gid.ipv4_mapped]
    gloo_address = "" if root or os.environ.get("GLOO_SOCKET_IFNAME") else first_address(socket.gethostname())
    return {
        **{key: value for key, value in os.environ.items() if SHARED_SETTINGS.fullmatch(key)},
        "node": name,
        **({"the family of the node's own address": "IPv6" if ":" in gloo_address else "IPv4"} if gloo_address else {}),
        "kernel": os.uname().release,
        "GPUs": join_distinct(text.partition("Model:")[2].split("\n")[0].strip() for text in models),
        "number of GPUs": str(len(glob.glob(root + "/dev/nvidia[0-9]*"))),
        "NVIDIA driver": driver.group(1) if driver else "",
        "nvidia_peermem": str(os.path.isdir(root + "/sys/module/nvidia_peermem")),
        "torch": "" if root else torch_version(),
        "NCCL": "%d.%d.%d" % nccl if nccl else "",
        "NCCL's network plugin": "found" if has_plugin else "not found",
        "EFA driver": first_line(root + "/sys/module/efa/version"),
        "RDMA devices": join_distinct(device.driver for device in usable),
        "number of usable RDMA devices": str(len(usable)),
        "firmware of adapters": join_distinct(device.firmware for device in usable),
        "link layers": join_distinct(device.link_layer for device in usable),
        "subnets of InfiniBand": join_distinct(device.subnet for device in usable),
        "partitions of InfiniBand": join_distinct(
            "0x%04x" % (key & PARTITION) for device in usable for key in device.partition_keys.values()
        ),
        "link rates": join_distinct(device.rate for device in usable),
        "MTU": join_distinct(device.mtu for device in usable),
        "indexes of RoCE v2": join_distinct(routed),
    }
