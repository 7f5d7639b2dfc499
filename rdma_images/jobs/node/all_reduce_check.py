"""Run an all-reduce over all GPUs of a job before its command: does NCCL start, over which network, and how fast?

It starts one process for each GPU of this node, with the job's own environment, torch and NCCL; the processes of all
nodes form one communicator. Prints a line for each finding, which `rdma_images.jobs.run.watch` reads, and before an
error what NCCL and torch printed. Ends with 1 after an error.

Needs Python 3.8 and the image's torch; without torch or a GPU it says so or does nothing, and ends with 0.
"""

from __future__ import annotations

import argparse
import glob
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING

from rdma_images.jobs.node.all_reduce_failure import (
    CHANNEL_WAY,
    LIMIT_SECONDS,
    describe_failure,
    first_warning,
    nccl_log,
    print_failure,
)
from rdma_images.jobs.node.all_reduce_ranks import (
    GRACE_SECONDS,
    MESSAGE_BYTES,
    kill_process,
    share_failure,
    start_observer,
    start_rank,
    wait_for_ranks,
)
from rdma_images.jobs.node.finding import ALL_REDUCE, print_findings
from rdma_images.jobs.node.gpus import visible_gpu_names
from rdma_images.jobs.node.nccl_settings import describe_settings, set_variables_of_files
from rdma_images.jobs.node.rdma_devices import read_devices, total_rate
from rdma_images.jobs.node.system import describe_symbol_library

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding

NAME = "all-reduce"  # what its findings are about
# Below this share of the adapters' rates something is wrong: published runs of 256 MiB on two and four nodes reach 80 %
# and more (facts/reference-busbw.yaml, p5.48xlarge and p6-b200.48xlarge); more nodes need larger messages for that.
SLOW_SHARE = 0.25
SLOW_BANDWIDTH = 0.25  # GB/s between nodes without adapters: gradients of 1 GB take four seconds
CHANNEL = re.compile(r"via NET/(?P<network>[^/\n]+)/\d+(?:\(\d+\))?(?P<ways>(?:/\w+)*)")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?P<name>[\w;-]+)")
# Settings that keep GPUs of one node from the ways that are faster than the one that NCCL takes then.
WAY_SETTINGS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")
# Settings that take a choice from NCCL that it makes by the size of each message.
ALGORITHM_SETTINGS = ("NCCL_ALGO", "NCCL_PROTO")


def visible_gpus() -> int:
    """Return how many GPUs this process may use, without CUDA: it is to fork later."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    files = len(glob.glob("/dev/nvidia[0-9]*"))
    return files if visible is None else len(visible_gpu_names(visible, files))


class Networks:
    """The networks between nodes that NCCL's logs of this node's ranks name."""

    def __init__(self, lines: list[str]) -> None:
        self.channels: dict[str, int] = {}  # number of channels, by network
        self.has_gpudirect = False
        self.providers: set[str] = set()  # libfabric's, which the plugin chose
        for line in lines:
            if channel := CHANNEL.search(line):
                self.channels[channel["network"]] = self.channels.get(channel["network"], 0) + 1
                self.has_gpudirect |= "GDRDMA" in channel["ways"]
            elif provider := PROVIDER.search(line):
                self.providers.add(provider["name"])

    def __str__(self) -> str:
        names = " and ".join("NET/" + name for name in sorted(self.channels))
        return names + (" with GPUDirect" if self.has_gpudirect else "")


def check_result(options: argparse.Namespace, folder: str) -> Iterator[Finding]:
    """Yield the findings about ranks that all ended well: the network first, then the speed."""
    with open(folder + "/result.0") as file:
        result = json.load(file)
    networks = Networks([line for rank in range(options.gpus) for line in nccl_log(folder, rank)])
    if not result["is_right"]:
        yield "error", NAME, "the sum over all GPUs is wrong: an adapter, a link or a GPU changes data"
    if options.nodes > 1:
        yield from check_network(options, folder, networks, result["bus_bandwidth"])
    elif networks.channels:
        settings = list_settings(WAY_SETTINGS)
        sentence = "the GPUs of this node reach each other over %s, and not over NVLink, PCIe or shared memory%s"
        yield "warning", NAME, sentence % (networks, ": by " + settings if settings else "")
    yield from check_way_within_node(folder, result.get("can_reach_peer", False))
    if options.rank == 0:
        sentence = "%d GPUs of %d node%s%s: %s; NCCL was ready after %.1f s"
        sentence = sentence % (
            options.nodes * options.gpus,
            options.nodes,
            "s" if options.nodes > 1 else "",
            " over %s" % networks if networks.channels else "",
            describe_speed(result["bus_bandwidth"]),
            result["start_seconds"],
        )
        yield "note", NAME, sentence
        if settings := list_settings(ALGORITHM_SETTINGS):
            yield "note", NAME, "%s: NCCL does not choose the fastest way for the size of each message" % settings


def check_network(
    options: argparse.Namespace, folder: str, networks: Networks, bus_bandwidth: float
) -> Iterator[Finding]:
    """Yield a finding if NCCL takes another network than the fabric, or a slow one."""
    rate = total_rate(read_devices(options.root.rstrip("/")), options.adapters)
    other_providers = sorted(name for name in networks.providers if not name.startswith("efa"))
    uses_sockets = "Socket" in networks.channels and bool(options.fabric or rate)
    if uses_sockets or (options.fabric == "efa" and other_providers):
        print("\n".join(nccl_log(folder, 0)), flush=True)
    if uses_sockets:
        sentence = "NCCL sends between the nodes over TCP sockets, and not over "
        severity = "error" if options.fabric else "warning"
        yield severity, NAME, sentence + (options.fabric or "this node's RDMA adapters")
    elif options.fabric == "efa" and other_providers:
        yield "error", NAME, "libfabric uses its provider %s, and not efa" % ", ".join(other_providers)
    elif networks.channels and bus_bandwidth < rate * SLOW_SHARE:
        reason = "" if networks.has_gpudirect else ", and no channel uses GPUDirect"
        sentence = "%s, where this node's adapters carry %.1f GB/s%s"
        yield "warning", NAME, sentence % (describe_speed(bus_bandwidth), rate, reason)
    elif not rate and bus_bandwidth < SLOW_BANDWIDTH:
        sentence = "%s over %s: GPUs will wait for the network between the nodes, which is far slower than within one"
        yield "warning", NAME, sentence % (describe_speed(bus_bandwidth), networks)


def check_way_within_node(folder: str, can_reach_peer: bool) -> Iterator[Finding]:
    """Yield a finding if a setting keeps GPUs of a node from each other's memory."""
    ways = {match["way"].partition("/")[0] for match in map(CHANNEL_WAY.search, nccl_log(folder, 0)) if match}
    settings = list_settings(WAY_SETTINGS)
    if "SHM" in ways and settings and can_reach_peer:
        sentence = "the GPUs of this node could reach each other directly, and send through the host's memory: by %s"
        yield "warning", NAME, sentence % settings


def describe_speed(bus_bandwidth: float) -> str:
    """Return what was measured, a bus bandwidth in GB/s."""
    return "%d MiB at %.1f GB/s bus bandwidth" % (MESSAGE_BYTES >> 20, bus_bandwidth)


def list_settings(names: tuple[str, ...]) -> str:
    """Return the variables of these that are set, with their values and commas; "" for none."""
    return ", ".join("%s=%s" % (name, os.environ[name]) for name in names if name in os.environ)


def run_all_reduce(options: argparse.Namespace, folder: str) -> Iterator[Finding]:
    """Yield the findings of the all-reduce, after printing NCCL's and torch's lines."""
    if importlib.util.find_spec("torch") is None:
        yield "note", NAME, "not run: the image has no torch for %s" % sys.executable
        return
    try:
        import torch
    except Exception:
        traceback.print_exc(file=sys.stdout)
        text = traceback.format_exc().strip().splitlines()[-1][:300]
        yield "error", NAME, "torch cannot be imported: %s%s" % (text, describe_symbol_library(text))
        return
    if torch.version.cuda is None:
        yield "note", NAME, "not run: the image's torch %s has no CUDA" % torch.__version__
        return
    processes = {start_rank(options, local_rank, folder): local_rank for local_rank in range(options.gpus)}
    observer = start_observer(options, folder)
    try:
        failures = wait_for_ranks(processes, LIMIT_SECONDS + options.nodes, folder)
        if any(failures.values()):
            share_failure(options, folder, failures)
    finally:
        for process in (observer, *processes):
            kill_process(process)
    if not failures:
        yield from check_result(options, folder)
        return
    local_rank = next(iter(failures))
    if first_warning(nccl_log(folder, local_rank)) < 0:
        time.sleep(GRACE_SECONDS)  # for the rank to speak first that this one waited for
    print_failure(folder, local_rank)
    yield "error", NAME, describe_failure(options, folder, failures)
    settings = describe_settings()
    if settings:
        yield "note", NAME, "NCCL's settings here: " + settings[:300]


def check(options: argparse.Namespace) -> Iterator[Finding]:
    """Yield the findings of the all-reduce; none where the job has fewer than two GPUs."""
    list(set_variables_of_files(options.root.rstrip("/")))  # the check of the node has said them
    if options.nodes * options.gpus < 2 or not glob.glob("/dev/nvidia[0-9]*"):
        return
    try:
        temporary = tempfile.TemporaryDirectory(prefix="all-reduce-")
    except OSError as error:
        yield "warning", NAME, "not run: no temporary folder can be written: %s; mount one at /tmp" % error
        return
    with temporary as folder:
        yield from run_all_reduce(options, folder)


def main(arguments: list[str]) -> int:
    """Run the all-reduce, print the findings, and return the exit code: 1 after an error."""
    parser = argparse.ArgumentParser(prog=ALL_REDUCE)
    parser.add_argument("--fabric", default="", help="efa, erdma or ib; empty where TCP is no error")
    parser.add_argument("--adapters", type=int, default=0, help="adapters of the node that the job uses; 0: all")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each node; 0: all that are visible")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0, help="this node's number")
    parser.add_argument("--master", default="127.0.0.1", help="name or address of node 0")
    parser.add_argument("--root", default="/")
    options = parser.parse_args(arguments)
    options.gpus = options.gpus or visible_gpus()
    return int(print_findings(ALL_REDUCE, check(options)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
