"""End a training whose NCCL does not use RDMA, within 30 seconds and with the reason: one file for Python 3.8.

    import rdma_check

    rdma_check.start()  # before the first use of NCCL
    torch.distributed.init_process_group("nccl")

It sets NCCL_DEBUG=INFO and a file for NCCL's log where the job has none, and reads the log of its own process in a
thread. Where the ranks of more than one node use TCP, or a line comes after which no job goes on, it prints why and
ends the process with exit code 1; the launcher then ends the others. Where an exception ends the training later, it
prints what NCCL's log says of it.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import threading
import time
from types import TracebackType

SECONDS = 30.0  # after NCCL's first line
# What lines mean, as in facts/nccl-logs.yaml: an expression, its meaning, whether no job goes on after it.
CAUSES: list[tuple[str, str, bool]] = [
    (
        "NET/Socket : Using .*\\[\\d+\\](?P<name>veth\\w+|docker\\d+|virbr\\d+|pod-id-link\\d+|cni\\d+|flannel[.\\w]*):",
        "NCCL's sockets use the interface {name}, too, which other nodes do not reach: name the nodes' own in NCCL_SOCKET_IFNAME",
        False,
    ),
    (
        "NET/Plugin ?: No plugin found, using internal implementation",
        "no network plugin was found (libnccl-net.so)",
        False,
    ),
    ("NET/Plugin: No plugin found", "no network plugin was found (libnccl-net.so)", False),
    (
        "NET/Plugin: Could not find: (?P<name>.+?)(?:\\. Using internal.*)?$",
        "no network plugin was found by the name {name}",
        False,
    ),
    (
        "NET/Plugin ?: Plugin load(?: \\(.*\\))? returned \\d+ : (?P<name>.+?)(?: : when loading.*)?$",
        "the plugin could not be opened: {name}",
        False,
    ),
    (
        "NET/Plugin: Failed to find ncclNetPlugin symbol \\(>= v5\\)",
        "the plugin is too old for this NCCL: it exports no interface of v5 or later",
        False,
    ),
    (
        "NET/Plugin: Failed to find ncclNetPlugin_v6 symbol",
        "the plugin is too old for this NCCL: it exports no interface of v6 or later",
        False,
    ),
    (
        "External network plugin (?P<name>.+) is unsupported",
        "the plugin {name} exports no interface that this NCCL knows",
        False,
    ),
    (
        "Failed to initialize NET plugin (?P<name>(?!IB$|Socket$).+)",
        "the plugin {name} was found, and failed to start",
        False,
    ),
    (
        "NET/OFI No eligible providers were found",
        "the plugin found no EFA device in the container: ask for vpc.amazonaws.com/efa, or give Docker --device=/dev/infiniband; a hostPath of /dev/infiniband can hide EFA",
        False,
    ),
    (
        "NET/OFI OFI fi_getinfo\\(\\) call failed: No data available",
        "the plugin found no EFA device in the container: ask for vpc.amazonaws.com/efa, or give Docker --device=/dev/infiniband; a hostPath of /dev/infiniband can hide EFA",
        False,
    ),
    (
        "NET/OFI Could(?:n't| not) find any optimal provider",
        "the plugin found no EFA device in the container: ask for vpc.amazonaws.com/efa, or give Docker --device=/dev/infiniband; a hostPath of /dev/infiniband can hide EFA",
        False,
    ),
    (
        "NET/OFI Couldn't (?:open|create|enable) (?:an? )?(?P<object>(?!any)[\\w ]+?)(?: using ofiutils helper)?\\. RC: -\\d+, ERROR: (?P<error>.+)",
        "the plugin has a provider, and libfabric gives it no {object}: {error}",
        False,
    ),
    (
        "NET/OFI Couldn't set FI_OPT_(?P<option>\\w+)\\. RC: -92",
        "the libfabric that is loaded does not know {option}: it is older than the one that the plugin was built with; keep the EFA installer's libfabric alone",
        False,
    ),
    (
        "Attribute arch of node cpu not found",
        "the plugin's topology file names a CPU that none of the job's GPUs is at: take aws-ofi-nccl 1.13 or later, or all GPUs of the node",
        True,
    ),
    ("NET/OFI Unable to find a protocol that worked", "the plugin found no way to use the devices it has", False),
    ("NET/OFI aws-ofi-nccl initialization failed", "the plugin failed to start", False),
    (
        "NET/OFI Unexpected group size 0",
        "the plugin has EFA adapters, and finds none of them beside a GPU in the PCI topology that the container shows",
        False,
    ),
    (
        "NET/OFI Selected [Pp]rovider is (?P<name>(?!efa)[\\w;-]+)",
        "libfabric chose its provider {name}, not efa",
        False,
    ),
    (
        "NET/OFI Request .*completed with error\\. RC: (?P<code>\\d+)",
        "a transfer over libfabric ended with error {code}: the lines of NET/OFI before it say more",
        True,
    ),
    (
        "NET/OFI .*Error:? \\d+ \\((?:Unreachable remote|Unresponsive receiver)",
        "the peers' EFAs do not reach each other: the security group must let all of its own traffic in and out",
        True,
    ),
    ("NET/IB : No device found", "NCCL's own RDMA found no InfiniBand, RoCE or eRDMA device in the container", False),
    (
        "NET/IB : Unable to open device (?P<device>\\S+)",
        "{device} is in /sys/class/infiniband and cannot be opened: give the container /dev/infiniband, as Docker's --device=/dev/infiniband",
        False,
    ),
    (
        "Failed to open libibverbs\\.so\\[\\.1\\]",
        "libibverbs.so.1 is not in the image, and NCCL's own RDMA needs it (on nodes that have an adapter)",
        False,
    ),
    (
        "ount not open libibverbs\\.so\\.1",
        "libibverbs.so.1 is not in the image, and NCCL's own RDMA needs it (on nodes that have an adapter)",
        False,
    ),
    (
        "NET/Plugin ?: (?:.* |.*=)?(?P<library>/\\S+|lib\\S+): version `(?P<version>\\S+)' not found \\(required by (?P<name>[^)]+)\\)",
        "{name} needs {version}, and {library} does not have it: two versions of a library are in the image",
        False,
    ),
    (
        "Call to ibv_(?:create_qp|create_cq|reg_mr|reg_mr_iova2) failed with error (?:Cannot allocate memory|.*-12)",
        "memory must be locked and may not be: set memlock to unlimited",
        True,
    ),
    ("Call to ibv_create_(?:qp|cq) failed$", "memory must be locked and may not be: set memlock to unlimited", True),
    (
        "Call to ibv_modify_qp failed with (?!.*retrying)(?:error )?(?:-?\\d+ )?(?P<error>\\w[^,]*?)(?: errno \\d+)?(?:,.*)?$",
        "two adapters could not be connected ({error})",
        True,
    ),
    (
        "Call to ibv_modify_qp failed with (?!.*retrying)(?:error |22 )Invalid argument",
        "two adapters could not be connected (Invalid argument): NCCL_IB_GID_INDEX names no usable GID; leave it out, or set -1",
        True,
    ),
    (
        "Call to ibv_modify_qp failed with (?!.*retrying)(?:error |101 )Network is unreachable",
        "two adapters could not be connected (Network is unreachable): no route leads from the GID of one to the other's; compare the nodes' tables of GIDs",
        True,
    ),
    (
        "Call to ibv_modify_qp failed with (?!.*retrying)(?:error |110 )Connection timed out",
        "two adapters could not be connected (Connection timed out): the network does not lead from one to the other; where rails are apart, set NCCL_CROSS_NIC=0",
        True,
    ),
    (
        "Call to ibv_modify_qp failed with (?!.*retrying)(?:error |19 )No such device",
        "two adapters could not be connected (No such device): one that NCCL chose cannot be used; leave it out, as NCCL_IB_HCA=^mlx5_3",
        True,
    ),
    (
        "Got completion .*(?:error |status=)(?:[\\w ]+\\()?(?P<status>[1-9]\\d*)\\b",
        "a transfer over RDMA ended with status {status}",
        True,
    ),
    (
        "Got completion .*(?:error |status=)(?:[\\w ]+\\()?4\\b",
        "an adapter may not read the memory of a GPU (status 4): GPUDirect RDMA is broken; see whether nvidia_peermem fits the driver and PCI ACS is off",
        True,
    ),
    (
        "Got completion .*(?:error |status=)(?:[\\w ]+\\()?12\\b",
        "a peer did not answer over RDMA (status 12): the adapters do not reach each other by these GIDs, or a link is bad",
        True,
    ),
    (
        "Got completion .*(?:error |status=)(?:[\\w ]+\\()?5\\b",
        "a connection over RDMA had failed before (status 5): an earlier error of this adapter, or another rank's log, says why",
        True,
    ),
    (
        "Got completion .*(?:error |status=)(?:[\\w ]+\\()?(?P<status>9|10|11)\\b",
        "a peer's adapter refused a transfer (status {status}): its process ended and freed the memory, or GPUDirect RDMA is broken there",
        True,
    ),
    (
        "Got completion .*(?:error |status=)(?:[\\w ]+\\()?13\\b",
        "a peer was not ready to receive (status 13): its process hangs or ended, see its log",
        True,
    ),
    (
        "async (?:event ?: local catastrophic error|fatal event: )",
        "an InfiniBand or RoCE adapter failed: take the node out, and see its dmesg (mlx5_core)",
        True,
    ),
    (
        "async fatal event on (?P<what>\\w+) .*: (?P<error>.+)",
        "an adapter gave a connection up ({what}: {error})",
        True,
    ),
    (
        "Bootstrap ?: no socket interface found",
        "NCCL found no network interface to start with: none is up, or NCCL_SOCKET_IFNAME names none of this node",
        True,
    ),
    (
        "ncclSocketInit: connecting to address  ?with family \\d+ is neither",
        "NCCL found no network interface to start with: none is up, or NCCL_SOCKET_IFNAME names none of this node",
        True,
    ),
    (
        "NET/Socket : No usable listening interface found",
        "NCCL found no network interface to start with: none is up, or NCCL_SOCKET_IFNAME names none of this node",
        True,
    ),
    (
        "Bootstrap ?: Using (?:\\[0\\])?(?P<name>lo|docker\\d+|virbr\\d+|pod-id-link\\d+|veth\\w+|cni\\d+|flannel[.\\w]*):",
        "NCCL starts over the interface {name}, which other nodes do not reach: set NCCL_SOCKET_IFNAME",
        False,
    ),
    (
        "Bootstrap ?: Using (?:\\[0\\])?(?P<name>[\\w.-]+):(?:169\\.254\\.|fe80::)",
        "NCCL starts over the interface {name}, whose address is link-local and not reached from other nodes: set NCCL_SOCKET_IFNAME",
        False,
    ),
    (
        "onnect to (?P<address>[\\w.:]+?)(?:%\\w+)?<\\d+> (?:failed|returned .*exceeded|returned \\d+\\()",
        "a rank does not reach {address} over TCP: a firewall, a security group, or an interface that the nodes do not share",
        True,
    ),
    (
        "onnect to (?P<address>169\\.254\\.\\d+\\.\\d+|172\\.17\\.0\\.\\d+)<\\d+> (?:failed|returned .*exceeded|returned \\d+\\()",
        "a rank does not reach {address}, which is an address inside a node (169.254: link-local; 172.17.0: Docker's bridge): use the host's network, or set NCCL_SOCKET_IFNAME",
        True,
    ),
    (
        "onnect to (?P<address>169\\.254\\.\\d+\\.\\d+|172\\.17\\.0\\.\\d+)<\\d+> returned .*retrying",
        "a rank tries to reach {address}, which is an address inside a node: set NCCL_SOCKET_IFNAME",
        False,
    ),
    (
        "Failed to initialize any NET plugin",
        "NCCL_NET names a network that is not there, and NCCL refused to go on with another",
        True,
    ),
    ("NCCL_NET_PLUGIN set by environment to none", "NCCL_NET_PLUGIN=none keeps NCCL from looking for a plugin", False),
    ("Mismatched NCCL version detected", "the ranks run different versions of NCCL", True),
    ("NCCL library is too old", "the program was compiled for a newer NCCL than the one loaded", True),
]
MESSAGE = re.compile(r"NCCL (?:INFO|WARN) (.*)")
SOCKET_CHANNEL = re.compile(r"Channel .* via NET/(Socket|FastSocket)/")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?!efa)([\w;-]+)")
SOCKETS = re.compile(r"Using network (?:Socket|FastSocket)\b")
NODES = re.compile(r" nNodes (\d+)\b")


class Log:
    """The state of one process's NCCL, by the lines of its log so far."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self.nodes = 0
        self.sockets = ""  # what shows that TCP is used
        self.stopped = ""
        self.warning = ""  # the first of NCCL

    def take(self, line: str) -> None:
        """Record what a line says."""
        match = MESSAGE.search(line)
        if not match:
            return
        message = match.group(1)
        if "NCCL WARN" in line:
            self.warning = self.warning or "NCCL's first warning: " + message
        if channel := SOCKET_CHANNEL.search(message):
            self.sockets = "the channels use NET/%s" % channel.group(1)
        elif provider := PROVIDER.search(message):
            self.sockets = "libfabric chose %s, not EFA" % provider.group(1)
        elif SOCKETS.search(message):
            self.sockets = self.sockets or "NCCL announced TCP sockets"
        if nodes := NODES.search(message):
            self.nodes = max(self.nodes, int(nodes.group(1)))
        for expression, meaning, stops in CAUSES:
            if cause := re.search(expression, message):
                text = meaning.format(**{key: value or "" for key, value in cause.groupdict().items()})
                if text not in self.causes:
                    self.causes.append(text)
                self.stopped = text if stops else self.stopped

    @property
    def reason(self) -> str:
        """Return why the training must end; "" where nothing says so."""
        if self.stopped:
            return self.stopped
        if self.sockets and (self.nodes > 1 or "channels" in self.sockets):
            return "; ".join([self.sockets, *self.causes])
        return ""


def _own_log() -> str:
    """Set the variables that make NCCL write a log, and return its path for this process."""
    os.environ["NCCL_DEBUG"] = "INFO"
    os.environ.pop("NCCL_DEBUG_SUBSYS", None)
    pattern = os.environ.get("NCCL_DEBUG_FILE") or tempfile.mkdtemp(prefix="nccl-") + "/%h.%p.log"
    os.environ["NCCL_DEBUG_FILE"] = pattern
    return pattern.replace("%h", socket.gethostname().split(".")[0]).replace("%p", str(os.getpid()))


def _watch(path: str, seconds: float) -> None:
    """Read the log until NCCL has been at work for `seconds`; end the process where it must not go on."""
    log, offset, unfinished, start = Log(), 0, "", 0.0
    while not start or time.monotonic() < start + seconds:
        time.sleep(0.2)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                file.seek(offset)
                text = file.read()
                offset = file.tell()
        except OSError:
            continue
        *lines, unfinished = (unfinished + text).split("\n")
        start = start or (time.monotonic() if lines else 0.0)
        for line in lines:
            log.take(line)
        if log.reason:
            _print(log.reason)
            os._exit(1)


def _print(reason: str) -> None:
    """Print a reason with the rank and the host of this process."""
    rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("SLURM_PROCID", "?")
    print("rdma_check: rank %s on %s: %s" % (rank, socket.gethostname(), reason), file=sys.stderr, flush=True)


def _explain(path: str, kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Print the exception that ends the training, and what the log says of it."""
    sys.__excepthook__(kind, error, frames)
    log = Log()
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                log.take(line)
    except OSError:
        return
    if log.stopped or log.warning:
        _print(log.stopped or log.warning)


def start(seconds: float = SECONDS) -> None:
    """Begin to watch this process's NCCL, before its first use. Returns at once."""
    path = _own_log()
    sys.excepthook = lambda *exception: _explain(path, *exception)
    threading.Thread(target=_watch, args=(path, seconds), name="rdma_check", daemon=True).start()
