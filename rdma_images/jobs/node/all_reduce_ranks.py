"""Run the ranks of an all-reduce, one process for each GPU of this node, and exchange failures with the other nodes.

What a process says is in files of one folder: `connected.<local rank>`, `result.<local rank>`, the logs that
`all_reduce_failure` reads, `local-failure`, `remote-failure`, `shared-failure` and `missing-ranks`.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import json
import os
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from rdma_images.jobs.node.all_reduce_failure import (
    LIMIT_SECONDS,
    LOST_PEER,
    PORT,
    describe_failure,
    describe_waiting,
    read_lines,
)
from rdma_images.jobs.node.finding import ALL_REDUCE, print_finding

if TYPE_CHECKING:
    import argparse

GRACE_SECONDS = 5.0  # for other ranks to say why, after one has failed
FINISH_SECONDS = 10.0  # for all ranks to end, after the last all-reduce
NOTE_SECONDS = 20.0  # after which the node says where its ranks are
SHARE_SECONDS = 10.0  # for other nodes to read a failure
MESSAGE_BYTES = 256 << 20
ROUNDS = 5  # measured, after one that is not
FAILURE_KEY = "failure"  # of the store: what the first rank said that failed
READ_KEY = "readers"  # of the store: how many other nodes have read it
STATUS_NAMES = {number.value: number.name for number in signal.Signals}


def rank_key(rank: int) -> str:
    """Return the key of the store that a rank sets when it comes."""
    return "rank %d" % rank


def run_rank(options: argparse.Namespace, local_rank: int, folder: str) -> None:
    """Take part in the all-reduces as one rank, and write `result.<local rank>`."""
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
    """Wait for every rank's measurement: an earlier end would break connections."""
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
    """Start a rank's process, with its output in `output.<local rank>`; return its id."""
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


def open_store(options: argparse.Namespace, folder: str, note_time: float) -> Any:
    """Return the store where all ranks meet, which the first node serves, once a rank of this node is connected.

    Prints a note at `note_time` where none is. Raises RuntimeError where the store cannot be served or reached.
    """
    from torch import distributed

    def is_alone() -> bool:
        return not os.path.exists(folder + "/local-failure") and not glob.glob(folder + "/connected.*")

    ranks, limit = options.nodes * options.gpus, datetime.timedelta(seconds=LIMIT_SECONDS + options.nodes)
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
    return server or distributed.TCPStore(options.master, PORT, ranks, False, timeout=limit, wait_for_workers=False)


def observe_ranks(options: argparse.Namespace, folder: str) -> None:
    """Say where this node's ranks are when they are late, and exchange failures.

    On the first node, serve the store where all ranks meet: it goes on where rank 0 ends.
    Writes how a rank of another node failed to `remote-failure` in `folder`; on the first node also the ranks that have
    not connected, to `missing-ranks`. Puts the `local-failure` that `share_failure` writes into the store, and writes
    `shared-failure` when the other nodes have it.
    """
    ranks, note_time = options.nodes * options.gpus, time.monotonic() + NOTE_SECONDS
    store = open_store(options, folder, note_time)
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
    sentence = "not done after %.0f s: %s" % (NOTE_SECONDS, describe_waiting(options, folder))
    print_finding(ALL_REDUCE, "note", "all-reduce", sentence)


def write_atomically(path: str, text: str) -> None:
    """Write a file, so that nobody reads a part of it."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def start_observer(options: argparse.Namespace, folder: str) -> int:
    """Start the process of `observe_ranks`, which ends after the limit; return its id."""
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
    """Wait at most `limit` seconds for the ranks' processes; those left go on.

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


def share_failure(options: argparse.Namespace, folder: str, failures: dict[int, str]) -> None:
    """Have the observer send this node's failure to the others, before the store ends.

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
