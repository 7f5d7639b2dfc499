"""Run an all-reduce over all GPUs of a job before its command: does NCCL start, over which network, and how fast?

It starts one process for each GPU of this node, with the job's own environment, torch and NCCL; the processes of all
nodes form one communicator. Prints a line for each finding, which `rdma_images.jobs.run.watch` reads, and before an
error what NCCL and torch printed. Ends with 1 after an error.

Needs Python 3.8 and the image's torch; without torch or a GPU it says so or does nothing, and ends with 0.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import glob
import importlib.util
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Any

from rdma_images.jobs.node.finding import node_name
from rdma_images.jobs.node.gpus import visible_gpu_names
from rdma_images.jobs.node.interfaces import is_local
from rdma_images.jobs.node.nccl_settings import describe_settings, set_variables_of_files
from rdma_images.jobs.node.system import describe_symbol_library

if TYPE_CHECKING:
    from collections.abc import Iterator

    Finding = tuple[str, str]  # severity, sentence

MARK = "rdma-images-all-reduce"
PORT = 29498  # where the ranks meet at the first node, beside torchrun's and the node check's
LIMIT_SECONDS = 90.0  # for a few nodes; a second more for each node
GRACE_SECONDS = 5.0  # for other ranks to say why, after one has failed
FINISH_SECONDS = 10.0  # for all ranks to end, after the last all-reduce
NOTE_SECONDS = 20.0  # after which the node says where its ranks are
SHARE_SECONDS = 10.0  # for other nodes to read a failure
MESSAGE_BYTES = 256 << 20
ROUNDS = 5  # measured, after one that is not
# Below this share of the adapters' rates something is wrong: published runs of 256 MiB on two and four nodes reach 80 %
# and more (facts/reference-busbw.yaml, p5.48xlarge and p6-b200.48xlarge); more nodes need larger messages for that.
SLOW_SHARE = 0.25
SLOW_BANDWIDTH = 0.25  # GB/s between nodes without adapters: gradients of 1 GB take four seconds
QUOTED_LINES = 60  # of NCCL's log, after its first warning
CHANNEL = re.compile(r"via NET/(?P<network>[^/\n]+)/\d+(?:\(\d+\))?(?P<ways>(?:/\w+)*)")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?P<name>[\w;-]+)")
# NCCL, src/misc/socket.cc: how an attempt ended, after which there may be another.
FAILED_CONNECTION = re.compile(r"[Cc]onnect to (?P<address>[^\s<]+)<\d+> (?:returned|failed *:) *(?P<reason>[^,\n]+)")
SOCKET_INTERFACES = re.compile(r"NET/Socket : Using (?P<interfaces>\[0\].+)")
CHANNEL_WAY = re.compile(r"NCCL INFO Channel \S+ : .* via (?P<way>[A-Z]\w+/[A-Za-z]\w*)")
FAILURE_KEY = "failure"  # of the store: what the first rank said that failed
READ_KEY = "readers"  # of the store: how many other nodes have read it
# The last lines of Python's and C++'s exceptions, the latter without the process group that torch puts before.
EXCEPTION = re.compile(r"([\w.]+(?:Error|Exception|Interrupt): .*)|\s*what\(\):\s+(?:\[[^]]*\] )?(.*)")
# What a rank says whose peer has ended: why is the peer's to say.
LOST_PEER = re.compile(r"closed by remote peer|remote process (?:has )?exited|Connection reset by peer|Broken pipe")
# Settings that keep GPUs of one node from the ways that are faster than the one that NCCL takes then.
WAY_SETTINGS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")
STATUS_NAMES = {number.value: number.name for number in signal.Signals}


def adapter_rate(root: str, count: int) -> float:
    """Return what the node's fastest active RDMA ports carry together, in GB/s; 0.0 where none is active.

    Args:
        root: The folder below which the kernel's files are.
        count: How many ports; 0 for all.
    """
    rates = []
    for port in sorted(glob.glob(root + "/sys/class/infiniband/*/ports/1")):
        try:
            with open(port + "/state") as state, open(port + "/rate") as rate:
                if "ACTIVE" in state.read():
                    rates.append(float(rate.read().split()[0]) / 8)
        except (OSError, ValueError, IndexError):
            continue
    return sum(sorted(rates, reverse=True)[: count or None])


def visible_gpus() -> int:
    """Return how many GPUs this process may use, without CUDA, which a process must not start before it forks."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    files = len(glob.glob("/dev/nvidia[0-9]*"))
    return files if visible is None else len(visible_gpu_names(visible, files))


def rank_key(rank: int) -> str:
    """Return the key of the store that a rank sets when it comes."""
    return "rank %d" % rank


def run_rank(options: argparse.Namespace, local_rank: int, folder: str) -> None:
    """Take part in the all-reduces as one rank, and write what was measured to `result.<local rank>` in `folder`."""
    os.environ["NCCL_DEBUG"] = "INFO"
    os.environ["NCCL_DEBUG_FILE"] = "%s/nccl.%d.log" % (folder, local_rank)
    os.environ.pop("NCCL_DEBUG_SUBSYS", None)
    import torch
    from torch import distributed

    rank, ranks = options.rank * options.gpus + local_rank, options.nodes * options.gpus
    torch.cuda.set_device(local_rank)
    limit = datetime.timedelta(seconds=2 * LIMIT_SECONDS + options.nodes)  # the parent ends it before
    store = distributed.TCPStore(options.master, PORT, ranks, False, timeout=limit, wait_for_workers=False)
    store.set(rank_key(rank), "here")
    open("%s/connected.%d" % (folder, local_rank), "w").close()
    store.wait([rank_key(number) for number in range(ranks)], limit)
    start = time.monotonic()
    distributed.init_process_group("nccl", store=store, rank=rank, world_size=ranks, timeout=limit)
    tensor = torch.ones(MESSAGE_BYTES // 4, device="cuda")
    distributed.all_reduce(tensor)
    is_right = bool(((tensor == ranks).all()).item())
    started = time.monotonic()
    for _ in range(ROUNDS):
        distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    seconds = (time.monotonic() - started) / ROUNDS
    result = {
        "start_seconds": started - start,
        "bus_bandwidth": MESSAGE_BYTES / seconds * 2 * (ranks - 1) / ranks / 1e9,
        "is_right": is_right,
        "can_reach_peer": options.gpus > 1
        and torch.cuda.can_device_access_peer(local_rank, (local_rank + 1) % options.gpus),
    }
    with open("%s/result.%d" % (folder, local_rank), "w") as file:
        json.dump(result, file)
    wait_for_all_ranks(store, ranks, is_beside_store=options.rank == 0)


def wait_for_all_ranks(store: Any, ranks: int, is_beside_store: bool) -> None:
    """Wait until every rank has measured: one that ends earlier would break the connections of the others."""
    deadline = time.monotonic() + FINISH_SECONDS
    try:
        store.add("measured", 1)
        while store.add("measured", 0) < ranks and time.monotonic() < deadline:
            time.sleep(0.05)
    except RuntimeError:
        return  # the store's process has ended, since all had measured
    if is_beside_store:
        time.sleep(0.5)


def start_rank(options: argparse.Namespace, local_rank: int, folder: str) -> int:
    """Start the process of one rank, whose output goes to `output.<local rank>` in `folder`, and return its id."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        output = os.open("%s/output.%d" % (folder, local_rank), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        run_rank(options, local_rank, folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def observe_ranks(options: argparse.Namespace, folder: str) -> None:
    """Say where this node's ranks are when they should have ended, and exchange failures with the other nodes.

    On the first node, serve the store where all ranks meet: it goes on where rank 0 ends.
    Writes how a rank of another node failed to `remote-failure` in `folder`; on the first node also the ranks that have
    not connected, to `missing-ranks`. Puts the `local-failure` that `share_failure` writes into the store, and writes
    `shared-failure` when the other nodes have it.
    """
    from torch import distributed

    ranks, note_time = options.nodes * options.gpus, time.monotonic() + NOTE_SECONDS

    def is_alone() -> bool:
        return not os.path.exists(folder + "/local-failure") and not glob.glob(folder + "/connected.*")

    limit = datetime.timedelta(seconds=LIMIT_SECONDS + options.nodes)
    server = None
    if options.rank == 0:
        try:
            server = distributed.TCPStore("127.0.0.1", PORT, ranks, True, timeout=limit, wait_for_workers=False)
        except RuntimeError as error:
            write_atomically(folder + "/remote-failure", "no store on port %d: %s" % (PORT, str(error).split("\n")[0]))
            raise
    while time.monotonic() < note_time and is_alone():
        time.sleep(0.1)
    if is_alone():
        print_note(options, folder)
    store = server or distributed.TCPStore(options.master, PORT, ranks, False, timeout=limit, wait_for_workers=False)
    missing, has_read = list(range(ranks)) if options.rank == 0 else [], False
    is_noted = time.monotonic() > note_time
    while True:
        text = "\n".join(read_lines(folder + "/local-failure"))
        if text:
            store.compare_set(FAILURE_KEY, "", text)
            if options.rank and not has_read:
                has_read = True
                store.add(READ_KEY, 1)
            if options.rank or store.add(READ_KEY, 0) >= options.nodes - 1:  # the store ends with this node
                write_atomically(folder + "/shared-failure", text)
        elif not has_read and store.check([FAILURE_KEY]):
            has_read = True
            write_atomically(folder + "/remote-failure", store.get(FAILURE_KEY).decode("utf-8", "replace"))
            store.add(READ_KEY, 1)
        if time.monotonic() > note_time:
            missing = [rank for rank in missing if not store.check([rank_key(rank)])]
            if options.rank == 0:
                write_atomically(folder + "/missing-ranks", ", ".join(map(str, missing[:8])))
            if not (is_noted or has_read or text):
                is_noted = True
                print_note(options, folder)
        time.sleep(1.0)


def print_note(options: argparse.Namespace, folder: str) -> None:
    """Print where this node's ranks wait."""
    print_finding("note", "not done after %.0f s: %s" % (NOTE_SECONDS, describe_waiting(options, folder)))


def write_atomically(path: str, text: str) -> None:
    """Write a file, so that nobody reads a part of it."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def start_observer(options: argparse.Namespace, folder: str) -> int:
    """Start the process of `observe_ranks`, and return its id: it ends when killed, or some time after the limit."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    try:
        signal.alarm(int(2 * LIMIT_SECONDS) + options.nodes)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # torch's warnings about connections
        observe_ranks(options, folder)
    except Exception:
        time.sleep(2 * LIMIT_SECONDS + options.nodes)  # the store is not there: the ranks say it
    finally:
        os._exit(0)


def kill_process(process: int) -> None:
    """End a process of this one, which may have ended."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if os.waitpid(process, os.WNOHANG) == (0, 0):  # of one that was waited for, the kernel may give the id away
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def wait_for_ranks(processes: dict[int, int], limit: float, folder: str = "") -> dict[int, str]:
    """Wait for the ranks' processes to end, at most `limit` seconds; those that are left go on.

    A rank that fails, here or on another node (`remote-failure` in `folder`), leaves the others a few seconds.

    Args:
        processes: The local rank of each process id.
        limit: Seconds.

    Returns:
        How each rank failed, by its local rank and in the order of time: "exit code 1", "SIGSEGV", "" for one that
        had not ended.
    """
    failures: dict[int, str] = {}
    running = dict(processes)
    deadline = time.monotonic() + limit
    while running and time.monotonic() < deadline:
        if folder and os.path.exists(folder + "/remote-failure"):
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            folder = ""
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            time.sleep(0.05)
        elif process in running:
            rank = running.pop(process)
            if os.WIFSIGNALED(status):
                failures[rank] = STATUS_NAMES.get(os.WTERMSIG(status), "signal %d" % os.WTERMSIG(status))
            elif os.WEXITSTATUS(status):
                failures[rank] = "exit code %d" % os.WEXITSTATUS(status)
            if rank in failures:
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
    return {**failures, **dict.fromkeys(running.values(), "")}


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
    """Print what a failed rank's NCCL and torch say: NCCL's lines from its first warning on, or its last five."""
    log = nccl_log(folder, local_rank)
    first = first_warning(log)
    first = first if first >= 0 else max(0, len(log) - 5)
    for line in log[first : first + QUOTED_LINES] + torch_output(folder, local_rank)[-QUOTED_LINES:]:
        print(line, flush=True)


def describe_failure(options: argparse.Namespace, folder: str, failures: dict[int, str]) -> str:
    """Return a sentence on why ranks failed: the cause of the first that ended, or where they all wait."""
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
    """Return where this node's ranks wait: for others, for an address that they do not reach, or after which line."""
    ranks = options.nodes * options.gpus
    for local_rank in range(options.gpus):
        rank = options.rank * options.gpus + local_rank
        log = nccl_log(folder, local_rank)
        if not os.path.exists("%s/connected.%d" % (folder, local_rank)):
            return "rank %d has not reached %s, port %d%s" % (rank, options.master, PORT, unresolved(options.master))
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


def unresolved(name: str) -> str:
    """Return why a name has no address here; "" where it has."""
    try:
        socket.getaddrinfo(name, PORT)
    except OSError as error:
        return ": the name is not resolved here (%s)" % error.strerror
    return ""


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


def findings(options: argparse.Namespace, folder: str) -> Iterator[Finding]:
    """Yield the findings about ranks that all ended well: the network first, then the speed."""
    with open(folder + "/result.0") as file:
        result = json.load(file)
    networks = Networks([line for rank in range(options.gpus) for line in nccl_log(folder, rank)])
    other_providers = sorted(name for name in networks.providers if not name.startswith("efa"))
    if not result["is_right"]:
        yield "error", "the sum over all GPUs is wrong: an adapter, a link or a GPU changes data"
    rate = adapter_rate(options.root.rstrip("/"), options.adapters)
    finding = None
    if options.nodes > 1 and "Socket" in networks.channels and (options.fabric or rate):
        network = options.fabric or "this node's RDMA adapters"
        finding = (
            "error" if options.fabric else "warning",
            "NCCL sends between the nodes over TCP sockets, and not over " + network,
        )
    elif options.nodes > 1 and options.fabric == "efa" and other_providers:
        finding = "error", "libfabric uses its provider %s, and not efa" % ", ".join(other_providers)
    if finding:
        print("\n".join(nccl_log(folder, 0)), flush=True)
        yield finding
    speed = "%d MiB at %.1f GB/s bus bandwidth" % (MESSAGE_BYTES >> 20, result["bus_bandwidth"])
    ways = {match["way"].partition("/")[0] for match in map(CHANNEL_WAY.search, nccl_log(folder, 0)) if match}
    settings = ", ".join("%s=%s" % (name, os.environ[name]) for name in WAY_SETTINGS if name in os.environ)
    if options.nodes == 1 and networks.channels:
        yield (
            "warning",
            "the GPUs of this node reach each other over %s, and not over NVLink, PCIe or shared memory%s"
            % (networks, ": by " + settings if settings else ""),
        )
    elif "SHM" in ways and settings and result.get("can_reach_peer"):
        sentence = "the GPUs of this node could reach each other directly, and send through the host's memory: by %s"
        yield "warning", sentence % settings
    if not finding and options.nodes > 1 and networks.channels and result["bus_bandwidth"] < rate * SLOW_SHARE:
        reason = "" if networks.has_gpudirect else ", and no channel uses GPUDirect"
        yield "warning", "%s, where this node's adapters carry %.1f GB/s%s" % (speed, rate, reason)
    elif not finding and options.nodes > 1 and not rate and result["bus_bandwidth"] < SLOW_BANDWIDTH:
        sentence = "%s over %s: GPUs will wait for the network between the nodes, which is far slower than within one"
        yield "warning", sentence % (speed, networks)
    if options.rank == 0:
        yield (
            "note",
            "%d GPUs of %d node%s%s: %s; NCCL was ready after %.1f s"
            % (
                options.nodes * options.gpus,
                options.nodes,
                "s" if options.nodes > 1 else "",
                " over %s" % networks if networks.channels else "",
                speed,
                result["start_seconds"],
            ),
        )


def share_failure(options: argparse.Namespace, folder: str, failures: dict[int, str]) -> None:
    """Have the observer send the other nodes how a rank of this one failed, before the first node's store ends.

    Let a rank of another node speak first that this one has lost. On the first node, wait until all have read it.
    """
    if options.nodes < 2:
        return
    sentence = describe_failure(options, folder, failures)
    deadline = time.monotonic() + GRACE_SECONDS
    while LOST_PEER.search(sentence) and time.monotonic() < deadline:
        if os.path.exists(folder + "/remote-failure"):
            return
        time.sleep(0.1)
    write_atomically(folder + "/local-failure", sentence)
    deadline = time.monotonic() + SHARE_SECONDS
    while not os.path.exists(folder + "/shared-failure") and time.monotonic() < deadline:
        time.sleep(0.1)


def check(options: argparse.Namespace, folder: str) -> Iterator[Finding]:
    """Yield the findings of the all-reduce; what NCCL and torch said of a failure is printed before it."""
    if importlib.util.find_spec("torch") is None:
        yield "note", "not run: the image has no torch for %s" % sys.executable
        return
    try:
        import torch
    except Exception:
        traceback.print_exc(file=sys.stdout)
        text = traceback.format_exc().strip().splitlines()[-1][:300]
        yield "error", "torch cannot be imported: %s%s" % (text, describe_symbol_library(text))
        return
    if torch.version.cuda is None:
        yield "note", "not run: the image's torch %s has no CUDA" % torch.__version__
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
    if failures:
        local_rank = next(iter(failures))
        if first_warning(nccl_log(folder, local_rank)) < 0:
            time.sleep(GRACE_SECONDS)  # for the rank to speak first that this one waited for
        print_failure(folder, local_rank)
        yield "error", describe_failure(options, folder, failures)
        settings = describe_settings()
        if settings:
            yield "note", "NCCL's settings here: " + settings[:300]
        return
    yield from findings(options, folder)


def print_finding(severity: str, sentence: str) -> None:
    """Print the line of a finding."""
    print(MARK, node_name(), severity, "all-reduce:", sentence, flush=True)


def main(arguments: list[str]) -> int:
    """Run the all-reduce, print the findings, and return the exit code: 1 after an error."""
    parser = argparse.ArgumentParser(prog=MARK)
    parser.add_argument("--fabric", default="", help="efa, erdma or ib; empty where TCP is no error")
    parser.add_argument("--adapters", type=int, default=0, help="adapters of the node that the job uses; 0: all")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each node; 0: all that are visible")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0, help="this node's number")
    parser.add_argument("--master", default="127.0.0.1", help="name or address of node 0")
    parser.add_argument("--root", default="/")
    options = parser.parse_args(arguments)
    options.gpus = options.gpus or visible_gpus()
    list(set_variables_of_files(options.root.rstrip("/")))  # the check of the node has said them
    if options.nodes * options.gpus < 2 or not glob.glob("/dev/nvidia[0-9]*"):
        return 0
    try:
        temporary = tempfile.TemporaryDirectory(prefix="all-reduce-")
    except OSError as error:
        print_finding("warning", "not run: no temporary folder can be written: %s; mount one at /tmp" % error)
        return 0
    has_failed = False
    with temporary as folder:
        for severity, sentence in check(options, folder):
            has_failed |= severity == "error"
            print_finding(severity, sentence)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
