"""The GPUs that torch sees, and an all-reduce over all of them, checked in every element."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from typing import Any

LIMIT = 150  # seconds for one all-reduce, start of the processes included
LOG_KEPT = 400000  # characters
SIZES = (1 << 22, 1 << 26, 1 << 30)  # bytes
# One process a GPU. Integers below 2**24 are exact in a float, so the sum can be compared without a tolerance.
WORKER = """
import json, os, sys, time, torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
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
# What makes NCCL take the network between two GPUs of one machine.
OVER_NETWORK = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


def gpus() -> dict[str, Any] | None:
    """The GPUs, and an all-reduce as NCCL runs it and one forced over the network; None where there is no torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    count = torch.cuda.device_count()
    found: dict[str, Any] = {
        "count": count,
        "names": [torch.cuda.get_device_name(i) for i in range(count)],
        "runs": {},
    }
    if count > 1:
        found["runs"]["default"] = all_reduce(count, {}, SIZES)
        found["runs"]["network"] = all_reduce(2, OVER_NETWORK, SIZES[:2])
    return found


def all_reduce(world: int, settings: dict[str, str], sizes: tuple[int, ...]) -> dict[str, Any]:
    """One all-reduce over `world` GPUs: for each size the wrong elements and GB/s of all ranks, and NCCL's log."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        held.close()
        # With a file to write to, NCCL says nothing on its standard output.
        inherited = {name: value for name, value in os.environ.items() if name != "NCCL_DEBUG_FILE"}
        environment = {
            **inherited,
            **settings,
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV,TUNING,P2P",
            "WORLD_SIZE": str(world),
            "PORT": str(port),
            "SIZES": json.dumps(sizes),
        }
        outs = [os.path.join(folder, str(rank)) for rank in range(world)]
        processes = [start(rank, environment, out) for rank, out in enumerate(outs)]
        codes = [finish(process) for process in processes]
        texts = [read(out) for out in outs]
    rows = [json.loads(line[5:]) for text in texts for line in text.splitlines() if line.startswith("ROWS ")]
    return {"codes": codes, "rows": rows, "log": "\n".join(texts)[:LOG_KEPT]}


def start(rank: int, environment: dict[str, str], out: str) -> subprocess.Popen[bytes]:
    """The process of one rank, writing to the file `out`."""
    with open(out, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env={**environment, "RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def finish(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a rank; None for one that had to be stopped."""
    try:
        return process.wait(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def read(path: str) -> str:
    """What a rank wrote."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
