"""Find which node of a job this is, by what the launcher says, and let one of the node's processes check it for all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

# Launchers by the variable that shows them, and their variables for: number of nodes, this node's number, the first
# node's address, this process's number on the node ("" for none). The first that is there counts.
LAUNCHERS = (
    ("TORCHELASTIC_RUN_ID", "GROUP_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_NODES", "SLURM_NODEID", "MASTER_ADDR", "SLURM_LOCALID"),
    ("PET_NNODES", "PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", ""),  # PyTorchJob, TrainJob
    ("LWS_GROUP_SIZE", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS", ""),  # LeaderWorkerSet
    ("SKYPILOT_NUM_NODES", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS", ""),
    ("NNODES", "NNODES", "NODE_RANK", "MASTER_ADDR", "LOCAL_RANK"),
    ("WORLD_SIZE", "WORLD_SIZE", "RANK", "MASTER_ADDR", ""),  # an older PyTorchJob, one process on each node
)
# MPIs: number of ranks, this rank, ranks on this node, its number there. They give nodes no numbers.
MPIS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),  # MPICH, Intel MPI
)
# What all processes of one attempt on one node have in common, and no others.
ATTEMPT = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID"),
    *("SLURM_STEP_ID", "SLURM_RESTART_COUNT", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"),
)
WAIT_SECONDS = 1200.0  # for the check of the node: the longest meeting and all-reduce
START_SECONDS = 60.0  # between the starts of two processes of a node


class JobNode(NamedTuple):
    """This process's place in the job."""

    nodes: int  # of the job
    number: int  # of this node
    first: str  # name or address of node 0; "" where it is not known
    local_rank: int = 0  # of this process on its node
    is_rank: bool = False  # the launcher starts several processes on a node, of which this is one
    local_ranks: int = 1  # how many on this node, where the launcher says it

    def socket_name(self, variables: Mapping[str, str]) -> str:
        """Return the abstract Unix socket of this node's processes in this attempt: it needs no file."""
        words = [variables.get(name, "") for name in ATTEMPT]
        digest = hashlib.sha256("\n".join([str(os.getuid()), str(self.number), *words]).encode()).hexdigest()
        return "\0rdma-preflight-" + digest[:32]


def find_node(variables: Mapping[str, str]) -> JobNode:
    """Return the place that the launcher's variables give; a job of this node alone where none does."""
    is_torchrun = "TORCHELASTIC_RUN_ID" in variables  # a rank of its own, whatever started it
    for size, rank, local_size, local_rank in MPIS:
        if variables.get(rank) and variables.get(local_size) and not is_torchrun:
            ranks, number, ranks_here = (int(variables[name]) for name in (size, rank, local_size))
            first, own = variables.get("MASTER_ADDR", ""), int(variables.get(local_rank, number % ranks_here))
            if ranks % ranks_here or number % ranks_here != own:
                placed = f"rank {number} is {own} of {ranks_here} on its node"
                raise ValueError(f"{placed}: MPI must place ranks node by node, as many on each: --map-by slot")
            return JobNode(ranks // ranks_here, number // ranks_here, first, own, True, ranks_here)
    if "SM_HOSTS" in variables and not is_torchrun:  # SageMaker
        hosts = json.loads(variables["SM_HOSTS"])
        return JobNode(len(hosts), hosts.index(variables["SM_CURRENT_HOST"]), hosts[0])
    for shown_by, nodes_name, number_name, first, local_rank in LAUNCHERS:
        if variables.get(shown_by):
            size = variables.get(nodes_name) or variables.get("SLURM_NNODES", "1")
            address = variables.get(first) or variables.get("MASTER_ADDR") or first_of_slurm(variables)
            if not size.isdigit():  # "2:4" is an elastic job's, whose nodes come and go: they do not meet
                return JobNode(1, 0, "")
            number, place = int(variables.get(number_name) or "0"), variables.get(local_rank)
            local = int(place or "0"), bool(place), ranks_of_node(variables, number)
            return JobNode(int(size), number, address.split("\n")[0].strip(), *local)
    return JobNode(1, 0, "")


def ranks_of_node(variables: Mapping[str, str], number: int) -> int:
    """Return the processes on a node; of Slurm's list "8(x2),4" 8 on nodes 0 and 1; 1 where no variable says it."""
    text = variables.get("LOCAL_WORLD_SIZE") or variables.get("SLURM_STEP_TASKS_PER_NODE", "1")
    counts = [int(count) for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text) for _ in range(int(times or 1))]
    return counts[min(number, len(counts) - 1)] if counts else 1


def first_of_slurm(variables: Mapping[str, str]) -> str:
    """Return the first node of Slurm's list: of "r[1-2]n[07-09,12],a" r1n07; its address where it has no name here."""
    nodelist = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST", "")
    name = re.sub(r"\[(\d+)[^\]]*\]", r"\1", nodelist).partition(",")[0]
    try:
        socket.getaddrinfo(name, None)
    except OSError:  # a container that does not know the cluster's names
        return variables.get("SLURM_LAUNCH_NODE_IPADDR", name)
    return name


class LocalRanks:
    """The checking process's end of the socket on which this node's other processes wait for its answer."""

    def __init__(self, socket_name: str, others: int) -> None:
        self.missing, self.text, self.deadline = others, "", time.monotonic() + START_SECONDS
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(socket_name)
        self.listener.listen(256)

    def answer(self, text: str, is_last: bool = False) -> None:
        """Answer those that have asked, the last time all: a folder for NCCL's logs, "-" for none, "" to end them."""
        self.text = text
        while self.missing > 0 or not is_last:
            self.listener.settimeout(max(0.0, self.deadline - time.monotonic()) if is_last else 0.0)
            try:
                connection = self.listener.accept()[0]
            except OSError:  # none asks
                return
            self.missing -= 1
            with connection, contextlib.suppress(OSError):
                connection.sendall(text.encode())


def ask_checking_rank(socket_name: str) -> str | None:
    """Return the answer to this rank; "" if the checking one has ended, None if it does not start."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.connect(socket_name)
            connection.settimeout(WAIT_SECONDS)
            return connection.recv(4096).decode()
        time.sleep(0.2)
    return None
