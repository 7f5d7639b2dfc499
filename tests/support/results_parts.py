"""Logs of jobs on other hardware: NCCL's real lines with the values of one job."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rdma_images.jobs.results import from_logs
from rdma_images.jobs.results.expectations import Expectations, job_expectations
from rdma_images.jobs.results.result import Result
from rdma_images.jobs.write.job import Job
from tests.support import nccl_tests_text as text

# busbw = 1.875 algbw: 16 ranks. What awslabs/awsome-distributed-ai published for two p5.48xlarge.
P5 = ((8, 29.1, 0.0, 0.0, 0), (1 << 30, 4607.6, 233.04, 436.95, 0), (1 << 34, 66132.0, 259.78, 487.09, 0))


@dataclass(frozen=True)
class LoggedNode:
    """What the ranks of a node say."""

    name: str
    gpus: int = 8
    adapters: int = 32
    network: str = "Libfabric"
    provider: str = "efa"
    gdr: bool = True
    plugin: str = "1.21.1"
    devices: Sequence[str] = ()  # of libibverbs; those of `network` IB
    used: int = 8  # devices that channels go over

    def lines(self, rank: int, local: int, ranks: int, nodes: int) -> list[str]:
        """Return the lines of one rank."""
        peer = (rank + self.gpus) % ranks
        messages = ["NCCL version 2.28.9+cuda13.0"]
        if self.network == "Libfabric":
            messages += [f"NET/OFI Initializing aws-ofi-nccl {self.plugin}", "NET/OFI Using Libfabric version 2.6"]
            fabric = "efa-direct" if self.provider == "efa" else "10.0.0.0/16"
            provider = f"NET/OFI Selected provider is {self.provider}"
            messages += [f"{provider}, fabric is {fabric} (found {self.adapters} nics)"]
        if self.devices:
            named = " ".join(f"[{n}]{device}:1/RoCE" for n, device in enumerate(self.devices))
            messages += [f"NET/IB : Using {named} [RO]; OOB eth0:10.0.0.2<0>"]
        way = f"NET/{self.network}/{local % self.used}{'/GDRDMA' if self.gdr else ''}"
        messages += [
            f"Using network {self.network}",
            f"ncclCommInitRankConfig comm 0x5 rank {rank} nranks {ranks} cudaDev {local} busId 60 - Init START",
            f"comm 0x5 rank {rank} nRanks {ranks} nNodes {nodes} localRanks {self.gpus} localRank {local} MNNVL 0",
            f"Channel 00/0 : {rank}[{local}] -> {(rank + 1) % ranks}[{local}] via P2P/CUMEM",
            f"Channel 00/0 : {rank}[{local}] -> {peer}[{local}] [send] via {way}",
            f"Channel 00/0 : {peer}[{local}] -> {rank}[{local}] [receive] via {way}",
        ]
        return [f"{self.name}:{4000 + local}:{4000 + local} [{local}] NCCL INFO {message}" for message in messages]


TWO = (LoggedNode("one"), LoggedNode("two"))
TCP = tuple(replace(node, network="Socket", gdr=False, used=1) for node in TWO)
P5_TWO = job_expectations(None, "p5.48xlarge", 2)
NO_EXPECTATIONS = Expectations()


def write(
    folder: Path, nodes: Sequence[LoggedNode] = TWO, rows: Sequence[text.Row] = P5, is_complete: bool = True
) -> list[Path]:
    """Return a log for each rank; rank 0's has the rows."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = sum(node.gpus for node in nodes)
    paths: list[Path] = []
    for node in nodes:
        for local in range(node.gpus):
            rank = len(paths)
            lines = node.lines(rank, local, ranks, len(nodes))
            if rank == 0 and rows:
                measured = text.from_2_13(rows)
                lines.append(measured if is_complete else measured[: measured.index("# Out of bounds")])
            paths.append(folder / f"{rank}.log")
            paths[-1].write_text("\n".join(lines) + "\n")
    return paths


def judged(
    folder: Path,
    nodes: Sequence[LoggedNode] = TWO,
    rows: Sequence[text.Row] = P5,
    against: Expectations = P5_TWO,
    tcp: Sequence[LoggedNode] = (),
    job: Job | None = None,
    is_complete: bool = True,
) -> Result:
    """Return the result of such a job."""
    over_tcp = write(folder / "tcp", tcp, ((1 << 30, 1.0, 2.0, 3.75, 0),)) if tcp else ()
    return from_logs.job_result(write(folder / "logs", nodes, rows, is_complete), job, over_tcp, folder, against)


def sentences(result: Result) -> list[str]:
    """Return what is wrong, of all runs."""
    return [problem.sentence for run in result.runs for problem in run.problems]
