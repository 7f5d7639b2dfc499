"""Say why an all-reduce failed or where it waits, by the logs of this node's ranks in one folder.

NCCL's log of a rank is `nccl.<local rank>.log`, what torch printed in it `output.<local rank>`.
"""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING

from rdma_images.jobs.node.interfaces import is_local

if TYPE_CHECKING:
    import argparse

PORT = 29498  # where the ranks meet at the first node, beside torchrun's and the node check's
LIMIT_SECONDS = 90.0  # for a few nodes; a second more for each node
QUOTED_LINES = 60  # of NCCL's log, after its first warning
# NCCL, src/misc/socket.cc: how an attempt ended, after which there may be another.
FAILED_CONNECTION = re.compile(r"[Cc]onnect to (?P<address>[^\s<]+)<\d+> (?:returned|failed *:) *(?P<reason>[^,\n]+)")
SOCKET_INTERFACES = re.compile(r"NET/Socket : Using (?P<interfaces>\[0\].+)")
CHANNEL_WAY = re.compile(r"NCCL INFO Channel \S+ : .* via (?P<way>[A-Z]\w+/[A-Za-z]\w*)")
# The last lines of Python's and C++'s exceptions, the latter without the process group that torch puts before.
EXCEPTION = re.compile(r"([\w.]+(?:Error|Exception|Interrupt): .*)|\s*what\(\):\s+(?:\[[^]]*\] )?(.*)")
# What a rank says whose peer has ended: why is the peer's to say.
LOST_PEER = re.compile(r"closed by remote peer|remote process (?:has )?exited|Connection reset by peer|Broken pipe")


def read_lines(path: str) -> list[str]:
    """Return a file's lines that have text; none where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.rstrip() for line in file if line.strip()]
    except OSError:
        return []


def nccl_log(folder: str, local_rank: int) -> list[str]:
    """Return the lines of a rank's NCCL."""
    return read_lines("%s/nccl.%d.log" % (folder, local_rank))


def torch_output(folder: str, local_rank: int) -> list[str]:
    """Return what torch printed in a rank, without the frames of C++."""
    lines = read_lines("%s/output.%d" % (folder, local_rank))
    return [line for line in lines if not line.startswith("frame #")]


def first_warning(log: list[str]) -> int:
    """Return the number of the first line with a warning of NCCL; -1 for none."""
    return next((number for number, line in enumerate(log) if "NCCL WARN" in line), -1)


def print_failure(folder: str, local_rank: int) -> None:
    """Print a failed rank's log: NCCL's from its first warning or the end, and torch's."""
    log = nccl_log(folder, local_rank)
    first = first_warning(log)
    first = first if first >= 0 else max(0, len(log) - 5)
    for line in log[first : first + QUOTED_LINES] + torch_output(folder, local_rank)[-QUOTED_LINES:]:
        print(line, flush=True)


def describe_failure(options: argparse.Namespace, folder: str, failures: dict[int, str]) -> str:
    """Return why ranks failed: the cause of the first one, or where they all wait."""
    local_rank, status = next(iter(failures.items()))
    rank, ranks = options.rank * options.gpus + local_rank, options.nodes * options.gpus
    log = nccl_log(folder, local_rank)
    if status:
        warning = first_warning(log)
        matches = [match for match in map(EXCEPTION.match, torch_output(folder, local_rank)) if match]
        last_line = "; the last line of its NCCL: " + nccl_text(log[-1]) if log else ""
        exceptions = [match[1] or match[2] for match in matches] or [status + last_line]
        reason = nccl_text(log[warning]) if warning >= 0 else exceptions[-1]
        if not (LOST_PEER.search(reason) and os.path.exists(folder + "/remote-failure")):
            return "rank %d of %d failed: %s" % (rank, ranks, reason[:300])
    remote_failure = read_lines(folder + "/remote-failure")
    if remote_failure:
        return remote_failure[0][:300]
    return "not done after %.0f s: %s" % (LIMIT_SECONDS + options.nodes, describe_waiting(options, folder))


def nccl_text(line: str) -> str:
    """Return what a line of NCCL's log says, without the process and the place in the source."""
    return re.split(r"NCCL (?:WARN|INFO) ", line)[-1]


def describe_waiting(options: argparse.Namespace, folder: str) -> str:
    """Return where this node's ranks wait, by the last that their logs say."""
    ranks = options.nodes * options.gpus
    for local_rank in range(options.gpus):
        rank = options.rank * options.gpus + local_rank
        log = nccl_log(folder, local_rank)
        if not os.path.exists("%s/connected.%d" % (folder, local_rank)):
            return "rank %d has not reached %s, port %d%s" % (
                rank,
                options.master,
                PORT,
                describe_unresolved(options.master),
            )
        attempts = [match for match in map(FAILED_CONNECTION.search, log) if match]
        if attempts:
            address, reason = attempts[-1]["address"], attempts[-1]["reason"]
            itself = ", an address of this node itself: set NCCL_SOCKET_IFNAME to the interface that the nodes share"
            return "rank %d does not reach %s (%s)%s" % (rank, address, reason, itself if is_local(address) else "")
    ways = sorted({match["way"] for match in map(CHANNEL_WAY.search, log) if match})
    if ways and any("Init COMPLETE" in line for line in log):
        blame = ": try NCCL_P2P_DISABLE=1, since an IOMMU or PCI ACS breaks what GPUs send to each other"
        sockets = [match["interfaces"] for match in map(SOCKET_INTERFACES.search, log) if match]
        detail = blame if any(way.startswith("P2P") for way in ways) else ""
        if "NET/Socket" in ways and sockets and "[1]" in sockets[0]:
            detail = " on %s: set NCCL_SOCKET_IFNAME to those that the nodes share" % sockets[0][:200]
        return "rank %d waits in the all-reduce, over %s%s" % (rank, " and ".join(ways), detail)
    if log:
        return "the last line of rank %d's NCCL: %s" % (rank, nccl_text(log[-1])[:300])
    missing = read_lines(folder + "/missing-ranks")
    if missing:
        return "not all %d ranks have come to %s, port %d, as rank %s" % (ranks, options.master, PORT, missing[0])
    if os.path.exists(folder + "/missing-ranks"):
        return "all %d ranks have come to %s, and NCCL has not started" % (ranks, options.master)
    return "NCCL has not started, or not all %d ranks have come to %s, port %d" % (ranks, options.master, PORT)


def describe_unresolved(name: str) -> str:
    """Return why a name has no address here; "" where it has."""
    try:
        socket.getaddrinfo(name, PORT)
    except OSError as error:
        return ": the name is not resolved here (%s)" % error.strerror
    return ""
