"""Rules on what a node gives: GPUs, adapters, memory, huge pages."""

import re
from collections.abc import Iterator

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.check.foreign_job import JobPart
from rdma_images.jobs.check.rules.rule import (
    EFA,
    ERDMA,
    GPU,
    HUGEPAGES,
    CheckContext,
    RuleFinding,
    is_placeholder,
    is_service,
    node_name,
    rule,
)

UNITS = {
    **{"": 1 / 2**20, "Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 2**20},
    **{"k": 1e3 / 2**20, "M": 1e6 / 2**20, "G": 1e9 / 2**20, "T": 1e12 / 2**20},
}
COUNTABLE = 2**43  # MiB: the 2^63 bytes beyond which Kubernetes does not count (apimachinery, resource.Quantity)
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([KMGT]i|[kMGT])?")


@rule("gpus.node", "error", "EC2's DescribeInstanceTypes and Alibaba Cloud's ECS guide, as in facts/instances.yaml")
def too_many_gpus(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report more GPUs than the node has: no node fits, and the job waits for ever."""
    if context.node and part.gpus and (requested := part.gpus.number) and requested > context.node.gpus:
        problem = f"{requested} GPUs, and {node_name(part)} has {context.node.gpus}"
        yield part.gpus, problem, f"ask for {context.node.gpus} at most"


@rule(
    "efa.count",
    "error",
    "EC2's DescribeInstanceTypes, as in facts/instances.yaml; skypilot issue 8391, aicr issue 2275",
)
def wrong_efa_count(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report fewer EFA than the GPUs' share of the node, or more than any node has."""
    if part.kind not in ("kubernetes", "skypilot") or not (context.node and context.node.fabric == "efa" and part.gpus):
        return
    gpus, requested = part.gpus.number, part.amount(EFA)
    if not gpus or gpus > context.node.gpus:
        return
    share = max(1, context.node.interfaces * gpus // context.node.gpus)
    if requested is None:
        # One node needs no adapters; DRA's claims, a privileged container and SkyPilot's tier give them in another way.
        is_pod = part.kind == "kubernetes" or part.network != "host"  # and no machine of SkyPilot's, whose tier decides
        has_nodes = is_pod and (part.job_nodes or 0) > 1 and not is_service(part)
        if has_nodes and not any(part.traits.get(setting) for setting in ("network_tier", "claims", "privileged")):
            problem = f"no {EFA}: NCCL finds no adapter and goes over TCP, or does not start"
            fix = f"ask for {EFA}: {share} in requests and limits"
            yield part.gpus, problem, fix, "error" if context.uses_fabric else "warning"
    elif (number := requested.number) is not None and number != share:
        capacity = f"{node_name(part)} has {context.node.interfaces} for {context.node.gpus} GPUs"
        idle = "no node has that many" if number > context.node.interfaces else f"{share - number} of {share} lie idle"
        if number < share or number > context.node.interfaces:
            yield requested, f"{EFA}: {number} for {gpus} GPUs: {capacity}, so {idle}", f"ask for {share}"


@rule("resources.equal", "error", "kubernetes.io, Device Plugins and Manage HugePages: limits have to equal requests")
def unequal_resources(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report GPUs, adapters or huge pages whose requests and limits differ."""
    for name in (GPU, EFA, ERDMA, HUGEPAGES):
        requested, limit = part.requests.get(name), part.limits.get(name)
        if requested and limit and requested.text != limit.text:
            problem = f"{name}: {requested.text} in requests, {limit.text or 'nothing'} in limits"
            yield limit, problem, "write the same in both"
        if requested and not limit:
            problem = f"{name} is in requests only: Kubernetes refuses such a pod"
            yield requested, problem, f"add {name}: {requested.text} to limits"


@rule("hugepages.node", "error", "facts/instances.yaml: what a node has as delivered")
def too_many_hugepages(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report more huge pages than a node has: no node fits."""
    requested = part.amount(HUGEPAGES)
    if requested and context.fabric and (size := mebibytes(requested.text)) is not None:
        most = context.tables.instances.nodes[context.fabric].hugepages
        if size > most:
            problem = f"{HUGEPAGES}: {_short(requested.text)}, and a node has {most} MiB as delivered"
            yield requested, problem, "ask for 5120Mi, or preallocate more pages on the nodes"


@rule("memory.node", "error", "EC2's DescribeInstanceTypes and Alibaba Cloud's ECS guide, as in facts/instances.yaml")
def too_much_memory(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report more memory than the node has, or any known node if the job names none."""
    requested = part.amount("memory")
    if not requested or (size := mebibytes(requested.text)) is None:
        return
    most = context.node.memory if context.node else max(node.memory for node in context.tables.instances.types.values())
    if size > most * 1024:
        subject = f"{node_name(part)} has" if context.node else "no known instance type has more than"
        problem = f"memory: {_short(requested.text)}, and {subject} {most} GiB"
        yield requested, problem, "ask for less", "error" if context.node or size > COUNTABLE else "warning"


@rule(
    "trainjob.resources",
    "error",
    "kubeflow/trainer v2.2.1, pkg/runtime/core/trainingruntime.go:182",
)
def erased_efa(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report resourcesPerNode without adapters: Trainer up to 2.2 erases the runtime's."""
    needs_fabric = (
        context.node or context.runtime_adapters or context.uses_fabric
    )  # else nothing shows that the job has a fabric
    word = part.traits.get("replaces")
    if word and needs_fabric and part.gpus and not (part.amount(EFA) or part.amount(ERDMA)):
        problem = (
            "resourcesPerNode has GPUs and no adapters: up to Trainer 2.2 it replaces the runtime's, which are lost"
        )
        yield word, problem, f"write {EFA} (or {ERDMA}) and the huge pages into resourcesPerNode as well"


@rule("instance.unknown", "warning", "facts/instances.yaml")
def unknown_instance(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report an instance type that no fact knows: its counts are not checked."""
    if part.instance and context.node is None and not is_placeholder(part.instance.text) and part.gpus:
        try:
            context.tables.instances.find(part.instance.text)
        except RefusedError as error:
            problem, _, fix = str(error).partition("\n")
            problem = f"{problem}: its counts were not checked"
            fix = fix or "name an instance type with the fabric"
            yield part.instance, problem, fix


@rule(
    "node.selector", "warning", "awslabs/awsome-distributed-ai, micro-benchmarks/nccl-tests/kubernetes/nccl-tests.yaml"
)
def no_selector(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report adapters without a node selector: pods may land on unlike nodes."""
    requested = part.amount(EFA) or part.amount(ERDMA)
    if (
        requested
        and not part.instance
        and "selector" not in part.traits  # a label of the cluster's own may stand for a type
        and part.kind in ("kubernetes", "arena")
        and part.title != "TrainJob"
        and not is_service(part)
    ):
        fix = "add nodeSelector node.kubernetes.io/instance-type"
        problem = "no instance type is selected: pods may land on unlike nodes, and the counts were not checked"
        yield requested, problem, fix


def mebibytes(quantity: str) -> float | None:
    """Return a quantity of Kubernetes in MiB, also infinite; None for what is none."""
    match = QUANTITY.fullmatch(quantity)
    return float(match[1]) * UNITS[match[2] or ""] if match else None


def _short(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:29]}…"
