"""Judge the all-reduce over all GPUs of a job: did NCCL start, over which network, and how fast?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rdma_images.nccl_logs.verdict import Verdict, judge_lines
from rdma_images.nccl_logs.wordings import Wordings
from rdma_images.preflight.all_reduce_ranks import MESSAGE_BYTES, Ranks
from rdma_images.preflight.devices import Device, total_rate
from rdma_images.preflight.job_nodes import JobNode
from rdma_images.preflight.system import Finding

# Below this share of the adapters' rates something is wrong: published runs of 256 MiB on two and four nodes reach 80 %
# and more (awslabs/awsome-distributed-ai, p5.48xlarge and p6-b200.48xlarge); more nodes need larger messages for that.
SLOW_SHARE = 0.25
QUOTED_LINES = 40  # of NCCL's log, after its first warning
NETWORKS = {"efa": ("efa",), "erdma": ("eRDMA",), "any": ("efa", "eRDMA", "InfiniBand")}  # by what is required


def check_answers(
    ranks: Ranks, answers: dict[int, Any], node: JobNode, carriers: list[Device], required: str, wordings: Wordings
) -> Iterator[Finding]:
    """Yield the findings of the all-reduce from what `ranks.run` returned, after NCCL's lines where it failed.

    `carriers` are the RDMA devices of the fabric, which `required` names, "" where TCP is no error.
    """
    verdict = judge_lines([line for rank in answers for line in ranks.lines("nccl", rank)], wordings)
    failed = [rank for rank, answer in answers.items() if "error" in answer]
    if failed:
        # One that was late waited for another, which says more.
        rank = next((rank for rank in failed if not answers[rank]["error"].startswith("not done")), failed[0])
        log = ranks.lines("nccl", rank)
        first = next((number for number, line in enumerate(log) if "NCCL WARN" in line), max(0, len(log) - 5))
        print("\n".join(log[first : first + QUOTED_LINES]), flush=True)
        reason = answers[rank]["error"] + ("; " + verdict.sentence if log else "")
        yield "error", "all-reduce", "rank %d of %d: %s" % (rank, ranks.total, reason)
        return
    if not all(answer["is_right"] for answer in answers.values()):
        yield "error", "all-reduce", "the sum over all GPUs is wrong: an adapter, a link or a GPU changes data"
    slowest = max(answers.values(), key=lambda answer: answer["seconds"])
    bandwidth = MESSAGE_BYTES / slowest["seconds"] * 2 * (ranks.total - 1) / ranks.total / 1e9
    speed = "%d MiB at %.1f GB/s bus bandwidth" % (MESSAGE_BYTES >> 20, bandwidth)
    if node.nodes > 1:
        yield from check_network(verdict, required, total_rate(carriers), speed, bandwidth)
    if node.number == 0:
        sentence = "%d GPUs of %d node(s): %s, NCCL was ready after %.1f s; %s"
        texts = (ranks.total, node.nodes, speed, slowest["start_seconds"], verdict.sentence)
        yield "note", "all-reduce", sentence % texts


def check_network(verdict: Verdict, required: str, rate: float, speed: str, bandwidth: float) -> Iterator[Finding]:
    """Yield a finding if NCCL takes another network between nodes than the required one, or a slow one."""
    if required and verdict.network not in NETWORKS[required]:
        severity = "warning" if verdict.network == "unknown" else "error"
        yield severity, "network", "%s is required: %s" % (required, verdict.sentence)
    elif verdict.network == "fallback" and rate:
        yield "warning", "network", "this node has RDMA adapters: %s" % verdict.sentence
    elif bandwidth < rate * SLOW_SHARE:
        sentence = "%s, where this node's adapters carry %.1f GB/s: %s"
        yield "warning", "network", sentence % (speed, rate, verdict.sentence)
