"""One all-reduce over GPUs, checked in every element: by torch, or by nccl-tests where the image has no torch."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

ALL_REDUCE_SECONDS = 120  # seconds for one all-reduce, start of the processes included
MAX_LOG_CHARACTERS = 400000  # characters
PROGRAM_FOLDERS = "/opt/nccl-tests/bin:/opt/amazon/openmpi/bin:/usr/local/bin:/usr/bin"
# One process a GPU. Integers below 2**24 are exact in a float, so the sum can be compared without a tolerance.
WORKER = """
import json, os, sys, time, torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank % torch.cuda.device_count())
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:" + os.environ["PORT"], rank=rank, world_size=world)
rows = []
for size in json.loads(os.environ["SIZES"]):
    base = torch.arange(size // 4, device="cuda", dtype=torch.float32).remainder_(4096)
    wanted = base * world + world * (world - 1) // 2
    data = base + rank
    dist.all_reduce(data)
    wrong = int((data != wanted).sum())
    del wanted, base
    for _ in range(2): dist.all_reduce(data)
    torch.cuda.synchronize(); start = time.perf_counter(); rounds = 10
    for _ in range(rounds): dist.all_reduce(data)
    torch.cuda.synchronize(); seconds = (time.perf_counter() - start) / rounds
    rows.append({"bytes": size, "wrong": wrong, "busbw": size / seconds * 2 * (world - 1) / world / 1e9})
    del data
dist.barrier()
print("ROWS " + json.dumps(rows), flush=True)
dist.destroy_process_group()
"""
# nccl-tests writes the first half of a row before it measures and the second after: what else is printed, NCCL's log or
# libfabric's, has to go elsewhere.
# Bytes, then of out of place and of in place: time, algorithm and bus bandwidth, wrong elements. Rank 0 prints it.
PERF_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+float\s+sum\s+-?\d+((?:\s+[\d.]+){4})((?:\s+[\d.]+){4})\s*$", re.MULTILINE)
# What mpirun's own messages go over, so that what is set for NCCL's libfabric does not touch them.
MPI = ("--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self")

Settings = Mapping[str, Optional[str]]


def program() -> str:
    """Return what does an all-reduce here: "torch", or the path of all_reduce_perf.

    "" for neither.
    """
    return "torch" if importlib.util.find_spec("torch") else _tool_path("all_reduce_perf")


def all_reduce(world: int, settings: Settings, sizes: tuple[int, ...], nodes: int = 1) -> dict[str, Any]:
    """Run an all-reduce of each of `sizes` bytes over the first `world` GPUs.

    One GPU does it twice; the sizes grow by one factor. `settings` go over the image's environment; None takes a
    variable away. With `nodes` = `world` NCCL takes each process for a node of its own, as NCCL_HOSTID says. Returns
    exit codes (None: stopped) and rows (bytes, wrong elements, GB/s) by process, what was set, and NCCL's log.
    """
    variables: dict[str, str | None] = {**settings, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": None}
    # All of NCCL's subsystems that log what a network does; a file to write to would leave standard output empty.
    variables["NCCL_DEBUG_SUBSYS"] = "INIT,NET,GRAPH,ENV,TUNING,P2P"
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
    hosts = ["node%d" % (rank * nodes // world) for rank in range(world)] if nodes > 1 else []
    path = program()
    run = _torch if path == "torch" else _nccl_tests
    with tempfile.TemporaryDirectory() as folder:
        codes, rows, texts = run(world, environment, sizes, hosts, folder)
    settings_with_hosts = {**settings, **({"NCCL_HOSTID": ",".join(hosts)} if hosts else {})}
    return {
        "program": path,
        "settings": settings_with_hosts,
        "codes": codes,
        "rows": rows,
        "log": "\n".join(texts)[:MAX_LOG_CHARACTERS],
    }


Done = Tuple[List[Optional[int]], List[List[Dict[str, Any]]], List[str]]  # codes, rows and texts by process


def _torch(world: int, environment: dict[str, str], sizes: tuple[int, ...], hosts: list[str], folder: str) -> Done:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    commands = []
    for rank in range(world):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(world), "PORT": str(port), "SIZES": json.dumps(sizes)}
        variables.update({"NCCL_HOSTID": hosts[rank]} if hosts else {})
        commands.append(([sys.executable, "-c", WORKER], {**environment, **variables}))
    codes, texts = _run(commands, folder)
    rows = [json.loads(line[5:]) for text in texts for line in text.splitlines() if line.startswith("ROWS ")]
    return codes, rows, texts


def _nccl_tests(world: int, environment: dict[str, str], sizes: tuple[int, ...], hosts: list[str], folder: str) -> Done:
    factor = sizes[1] // sizes[0] if len(sizes) > 1 else 2
    test = [program(), "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(factor), "-g", "1", "-n", "10", "-w", "2"]
    command = [_tool_path("mpirun") or "mpirun", *MPI]
    if hosts:
        for host in hosts:
            command += ["-np", "1", "-x", "NCCL_HOSTID=" + host, *test, ":"]
        command.pop()
    else:
        command += ["-np", str(world), *test]
    logs = os.path.join(folder, "nccl")
    os.mkdir(logs)
    codes, texts = _run([(command, {**environment, "NCCL_DEBUG_FILE": os.path.join(logs, "%p")})], folder)
    logged = [_read(os.path.join(logs, name)) for name in sorted(os.listdir(logs))]
    return codes, [rows for rows in [perf_rows(texts[0])] if rows], logged + texts


def perf_rows(text: str) -> list[dict[str, Any]]:
    """Return the rows that all_reduce_perf printed.

    They have the bandwidth out of place, and the wrong elements of both.
    """
    rows = []
    for size, outside, inside in PERF_ROW.findall(text):
        wrong = int(float(outside.split()[3])) + int(float(inside.split()[3]))
        rows.append({"bytes": int(size), "wrong": wrong, "busbw": float(outside.split()[2])})
    return rows


def _run(commands: list[tuple[list[str], dict[str, str]]], folder: str) -> tuple[list[int | None], list[str]]:
    """Run commands together; return exit codes (None: not in time) and their output."""
    deadline = time.monotonic() + ALL_REDUCE_SECONDS
    outs = [os.path.join(folder, str(number)) for number in range(len(commands))]
    processes = [_start(command, environment, out) for (command, environment), out in zip(commands, outs)]
    codes = [_finish(process, deadline) for process in processes]
    return codes, [_read(out) + "\n" + _read(out + ".errors") for out in outs]


def _start(command: list[str], environment: dict[str, str], out: str) -> subprocess.Popen[bytes]:
    """Return a process that writes to the file `out`, and its errors to another beside it."""
    with open(out, "wb") as output, open(out + ".errors", "wb") as errors:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)


def _finish(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Return the exit code; None for a process that had to be stopped."""
    try:
        return process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.terminate()  # mpirun then ends its ranks
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return None


def _read(path: str) -> str:
    """Return what a process wrote."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _tool_path(tool: str) -> str:
    return shutil.which(tool) or shutil.which(tool, path=PROGRAM_FOLDERS) or ""
