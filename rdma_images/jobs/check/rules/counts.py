"""Rules on what a node gives: GPUs, adapters, memory, huge pages."""

import re
from collections.abc import Iterator

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.check.foreign_job import Piece
from rdma_images.jobs.check.rules.rule import (
    EFA,
    ERDMA,
    GPU,
    HUGEPAGES,
    Answer,
    Known,
    is_open,
    is_service,
    node_name,
    rule,
)

UNITS = {
    **{"": 1 / 2**20, "Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 2**20},
    **{"k": 1e3 / 2**20, "M": 1e6 / 2**20, "G": 1e9 / 2**20, "T": 1e12 / 2**20},
}
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([KMGT]i|[kMGT])?")


@rule("gpus.node", "error", "EC2's DescribeInstanceTypes and Alibaba Cloud's ECS guide, as in facts/instances.yaml")
def too_many_gpus(piece: Piece, known: Known) -> Iterator[Answer]:
    """More GPUs than the node has: no node fits, and the job waits for ever."""
    if known.node and piece.gpus and (asked := piece.gpus.number) and asked > known.node.gpus:
        yield (
            piece.gpus,
            f"{asked} GPUs, and {node_name(piece)} has {known.node.gpus}",
            f"ask for {known.node.gpus} at most",
        )


@rule(
    "efa.count",
    "error",
    "EC2's DescribeInstanceTypes, as in facts/instances.yaml; skypilot issue 8391, aicr issue 2275",
)
def wrong_efa_count(piece: Piece, known: Known) -> Iterator[Answer]:
    """Fewer EFA than the GPUs' share of the node, which lie idle; or more than it has, so that no node fits."""
    if piece.kind not in ("kubernetes", "skypilot") or not (known.node and known.node.fabric == "efa" and piece.gpus):
        return
    gpus, asked = piece.gpus.number, piece.asked(EFA)
    if not gpus or gpus > known.node.gpus:
        return
    share = max(1, known.node.interfaces * gpus // known.node.gpus)
    if asked is None:
        # One node needs no adapters; DRA's claims, a privileged container and SkyPilot's tier give them in another way.
        several = (piece.job_nodes or 0) > 1 and not is_service(piece)
        if several and not any(piece.settings.get(way) for way in ("network_tier", "claims", "privileged")):
            what = f"no {EFA}: NCCL finds no adapter and goes over TCP, or does not start"
            fix = f"ask for {EFA}: {share} in requests and limits"
            yield piece.gpus, what, fix, "error" if known.uses_fabric else "warning"
    elif (number := asked.number) is not None and number != share:
        of = f"{node_name(piece)} has {known.node.interfaces} for {known.node.gpus} GPUs"
        idle = "no node has that many" if number > known.node.interfaces else f"{share - number} of {share} lie idle"
        if number < share or number > known.node.interfaces:
            yield asked, f"{EFA}: {number} for {gpus} GPUs: {of}, so {idle}", f"ask for {share}"


@rule("resources.equal", "error", "kubernetes.io, Device Plugins and Manage HugePages: limits have to equal requests")
def unequal_resources(piece: Piece, _: Known) -> Iterator[Answer]:
    """GPUs, adapters or huge pages that requests and limits do not have alike: the API server refuses the pod."""
    for name in (GPU, EFA, ERDMA, HUGEPAGES):
        asked, limit = piece.requests.get(name), piece.limits.get(name)
        if asked and limit and asked.text != limit.text:
            yield (
                limit,
                f"{name}: {asked.text} in requests, {limit.text or 'nothing'} in limits",
                "write the same in both",
            )
        if asked and not limit:
            yield (
                asked,
                f"{name} is in requests only: Kubernetes refuses such a pod",
                f"add {name}: {asked.text} to limits",
            )


@rule("hugepages.node", "error", "facts/instances.yaml: what a node has as delivered")
def too_many_hugepages(piece: Piece, known: Known) -> Iterator[Answer]:
    """More huge pages than a node has: no node fits."""
    asked = piece.asked(HUGEPAGES)
    if asked and known.fabric and (size := mebibytes(asked.text)) is not None:
        most = known.tables.instances.nodes[known.fabric].hugepages
        if size > most:
            what = f"{HUGEPAGES}: {_short(asked.text)}, and a node has {most} MiB as delivered"
            yield asked, what, "ask for 5120Mi, or preallocate more pages on the nodes"


@rule("memory.node", "error", "EC2's DescribeInstanceTypes and Alibaba Cloud's ECS guide, as in facts/instances.yaml")
def too_much_memory(piece: Piece, known: Known) -> Iterator[Answer]:
    """More memory than the node can give: no node fits."""
    asked = piece.asked("memory")
    if asked and known.node and (size := mebibytes(asked.text)) is not None and size > known.node.memory * 1024:
        yield asked, f"memory: {_short(asked.text)}, and {node_name(piece)} has {known.node.memory} GiB", "ask for less"


@rule("trainjob.resources", "error", "kubeflow/trainer pull request 3602, aicr issue 2275")
def erased_efa(piece: Piece, known: Known) -> Iterator[Answer]:
    """resourcesPerNode without the adapters: up to Trainer 2.2 it replaces the runtime's resources, EFA and all."""
    wanted = known.node or known.runtime_adapters or known.uses_fabric  # else nothing shows that the job has a fabric
    word = piece.settings.get("replaces")
    if word and wanted and piece.gpus and not (piece.asked(EFA) or piece.asked(ERDMA)):
        what = "resourcesPerNode has GPUs and no adapters: up to Trainer 2.2 it replaces the runtime's, which are lost"
        yield word, what, f"write {EFA} (or {ERDMA}) and the huge pages into resourcesPerNode as well"


@rule("arena.rdma", "error", "kubeflow/arena, charts/pytorchjob; Alibaba Cloud ACK, eRDMA with Arena")
def arena_rdma(piece: Piece, _: Known) -> Iterator[Answer]:
    """--rdma asks for rdma/hca, which is Lingjun's device and not eRDMA's."""
    if piece.kind == "arena" and (word := piece.settings.get("rdma")):
        yield word, "--rdma asks for rdma/hca, which no eRDMA node has", "write --device=aliyun/erdma=1 in its place"
    if piece.kind == "arena" and piece.gpus and ERDMA not in piece.limits:
        yield piece.gpus, f"no --device={ERDMA}=1: the pods get no eRDMA device", f"add --device={ERDMA}=1"


@rule("instance.unknown", "warning", "facts/instances.yaml")
def unknown_instance(piece: Piece, known: Known) -> Iterator[Answer]:
    """An instance type without EFA or eRDMA, or one that is not known: its counts are not checked."""
    if piece.instance and known.node is None and not is_open(piece.instance.text) and piece.gpus:
        try:
            known.tables.instances.find(piece.instance.text)
        except RefusedError as error:
            what, _, fix = str(error).partition("\n")
            yield piece.instance, f"{what}: its counts were not checked", fix or "name an instance type with the fabric"


@rule(
    "node.selector", "warning", "awslabs/awsome-distributed-ai, micro-benchmarks/nccl-tests/kubernetes/nccl-tests.yaml"
)
def no_selector(piece: Piece, _: Known) -> Iterator[Answer]:
    """Adapters without a node selector: pods may land on unlike nodes, and no count could be checked."""
    asked = piece.asked(EFA) or piece.asked(ERDMA)
    if (
        asked
        and not piece.instance
        and "selector" not in piece.settings  # a label of the cluster's own may stand for a type
        and piece.kind in ("kubernetes", "arena")
        and piece.what != "TrainJob"
        and not is_service(piece)
    ):
        fix = "add nodeSelector node.kubernetes.io/instance-type"
        yield asked, "no instance type is selected: pods may land on unlike nodes, and the counts were not checked", fix


def mebibytes(quantity: str) -> float | None:
    """Return a quantity of Kubernetes in MiB, infinite for one beyond all numbers; None for what is none."""
    match = QUANTITY.fullmatch(quantity)
    return float(match[1]) * UNITS[match[2] or ""] if match else None


def _short(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:29]}…"


@rule("ranks.gpus", "error", "NVIDIA/nccl, src/init.cc: two ranks of a communicator on one GPU are an error")
def ranks_and_gpus(piece: Piece, _: Known) -> Iterator[Answer]:
    """More ranks than GPUs on a node: NCCL refuses two on one. Fewer leave GPUs idle."""
    ranks, gpus = piece.ranks and piece.ranks.number, piece.gpus and piece.gpus.number
    if not (piece.ranks and piece.gpus and ranks and gpus) or ranks == gpus:
        return
    if ranks > gpus:
        what = f"{ranks} ranks on each node, and {gpus} GPU{'s' if gpus > 1 else ''}: NCCL refuses two ranks on one GPU"
        yield piece.ranks, what, f"start {gpus}, or ask for {ranks} GPUs"
    else:
        what = f"{ranks} rank{'s' if ranks > 1 else ''} on each node, and {gpus} GPUs: {gpus - ranks} may lie idle"
        yield piece.ranks, what, f"start {gpus}, or ask for {ranks}", "warning"


@rule("ranks.nodes", "error", "pytorch/pytorch, torch/distributed/run.py: --nnodes")
def ranks_and_nodes(piece: Piece, _: Known) -> Iterator[Answer]:
    """Another number of nodes in torchrun than in the job: the ranks wait for nodes, or nodes are refused."""
    match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", piece.rank_nodes.text) if piece.rank_nodes else None
    nodes = piece.job_nodes
    if not (match and piece.rank_nodes and nodes):
        return
    least, most = int(match[1]), int(match[2] or match[1])
    if nodes < least:
        yield piece.rank_nodes, f"torchrun waits for {least} nodes, and the job has {nodes}", f"write --nnodes={nodes}"
    elif nodes > most:
        what = f"torchrun takes {most} node{'s' if most > 1 else ''}, and the job has {nodes}"
        yield piece.rank_nodes, what, f"write --nnodes={nodes}"
