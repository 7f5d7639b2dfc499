"""Rules on what a node gives: GPUs, adapters and their devices, huge pages, and memory that may be locked."""

import re
from collections.abc import Iterator

from rdma_images.jobs.check.job_part import JobPart
from rdma_images.jobs.check.rule import EFA, ERDMA, HUGEPAGES, CheckContext, Problem, is_placeholder, rule

UNITS = {
    **{"": 1 / 2**20, "Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 2**20},
    **{"k": 1e3 / 2**20, "M": 1e6 / 2**20, "G": 1e9 / 2**20, "T": 1e12 / 2**20},
}
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([KMGT]i|[kMGT])?")


@rule("gpus.node", "error", "EC2's DescribeInstanceTypes and Alibaba Cloud's ECS guide, as in facts/instances.yaml")
def too_many_gpus(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report more GPUs than the node has, or fewer than none: no node fits, and the job waits for ever."""
    requested = part.gpus.number if part.gpus else None
    if context.node and part.gpus and requested is not None and not 0 <= requested <= context.node.gpus:
        message = f"{requested} GPUs, and {part.node_name} has {context.node.gpus}"
        yield Problem(part.gpus, message, f"ask for {context.node.gpus} at most")


@rule(
    "efa.count",
    "error",
    "EC2's DescribeInstanceTypes, as in facts/instances.yaml; skypilot issue 8391, aicr issue 2275",
)
def wrong_efa_count(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report fewer EFA than the GPUs' share of the node, or more than any node has."""
    if part.kind == "slurm" or not (context.node and context.node.fabric == "efa" and part.gpus):
        return
    gpus, requested = part.gpus.number, part.amount(EFA)
    if gpus is None or not 0 < gpus <= context.node.gpus:
        return
    share = max(1, context.node.interfaces * gpus // context.node.gpus)
    if requested is None:
        # DRA's claims, a privileged container and SkyPilot's tier give adapters in another way; one node needs none.
        is_in_pods = part.kind == "kubernetes" or part.network != "host"
        has_others = part.pod.has_claims or part.pod.is_privileged or part.network_tier
        if is_in_pods and part.node_count > 1 and not part.pod.is_service and not has_others:
            message = f"no {EFA}: NCCL finds no adapter and goes over TCP, or does not start"
            fix = f"ask for {EFA}: {share} in requests and limits"
            yield Problem(part.gpus, message, fix, "error" if context.uses_fabric else "warning")
    elif (number := requested.number) is not None and (number < share or number > context.node.interfaces):
        capacity = f"{part.node_name} has {context.node.interfaces} for {context.node.gpus} GPUs"
        idle = "no node has that many" if number > context.node.interfaces else f"{share - number} of {share} lie idle"
        idle = "no pod is made" if number < 0 else idle
        yield Problem(requested, f"{EFA}: {number} for {gpus} GPUs: {capacity}, so {idle}", f"ask for {share}")


@rule("trainjob.resources", "error", "kubeflow/trainer v2.2.1, pkg/runtime/core/trainingruntime.go:182")
def erased_efa(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report resourcesPerNode without adapters: Trainer up to 2.2 erases the runtime's."""
    shows_fabric = context.node or context.uses_fabric
    if part.title == "TrainJob" and part.gpus and shows_fabric and not (part.amount(EFA) or part.amount(ERDMA)):
        message = (
            "resourcesPerNode has GPUs and no adapters: up to Trainer 2.2 it replaces the runtime's, which are lost"
        )
        yield Problem(part.gpus, message, f"write {EFA} (or {ERDMA}) and the huge pages into resourcesPerNode as well")


@rule("skypilot.efa", "error", "skypilot-org/skypilot, sky/clouds/aws.py, make_deploy_resources_variables")
def machines_without_efa(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report SkyPilot's machines on AWS whose network tier brings no EFA interface."""
    tier, cloud = part.network_tier, part.cloud
    if not cloud or not cloud.text.lower().startswith("aws") or part.node_count < 2:
        return
    interfaces = context.node.interfaces if context.node else _fewest_interfaces(part, context)
    if not interfaces or (tier and (tier.text.lower() == "best" or is_placeholder(tier.text))):
        return
    message = f"without network_tier: best a machine gets none of its {interfaces} EFA interfaces: NCCL takes TCP"
    yield Problem(tier or cloud, message, "write network_tier: best into resources")


def _fewest_interfaces(part: JobPart, context: CheckContext) -> int:
    """Return the fewest EFA interfaces of the types with a machine's GPUs; 0 if a type with one would fit, too."""
    gpu, gpus = part.gpu.partition("-")[0], part.gpus.number if part.gpus else None
    types = [row for row in context.instances.types.values() if row.fabric == "efa" and row.gpu == gpu]
    fewest = min((row.interfaces for row in types if row.gpus == gpus), default=0)
    return fewest if fewest > 1 else 0


@rule("hugepages.node", "error", "facts/instances.yaml: what a node has as delivered")
def too_many_hugepages(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report more huge pages than a node has: no node fits."""
    requested = part.amount(HUGEPAGES)
    if requested and context.fabric and (size := _mebibytes(requested.text)) is not None:
        most = context.instances.nodes[context.fabric].hugepages
        if size > most:
            message = f"{HUGEPAGES}: {requested.text[:30]}, and a node has {most} MiB as delivered"
            yield Problem(requested, message, "ask for 5120Mi, or preallocate more pages on the nodes")


def _mebibytes(quantity: str) -> float | None:
    """Return a Kubernetes quantity in MiB; None if it cannot be parsed."""
    match = QUANTITY.fullmatch(quantity)
    return float(match[1]) * UNITS[match[2] or ""] if match else None


@rule("pod.rdma", "warning", "facts/running.yaml: IPC_LOCK beside the resource of the eRDMA devices, or privileged")
def limited_memory(part: JobPart, _: CheckContext) -> Iterator[Problem]:
    """Report pods with eRDMA devices that may not lock memory."""
    devices, is_described = part.amount(ERDMA), part.kind == "kubernetes" and part.network
    if devices and is_described and not part.pod.is_privileged and not part.pod.may_lock_memory:
        message = f"the pod has {ERDMA} and no IPC_LOCK: locked memory may be limited, and no queue pair be created"
        yield Problem(devices, message, "add securityContext.capabilities.add: [IPC_LOCK]")


@rule("devices.host-path", "warning", "aws-samples/aws-do-eks pull request 63: the same pod with and without it")
def host_devices(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a hostPath of /dev/infiniband: it brings other adapters, too, which hide EFA."""
    if part.pod.host_devices and context.fabric == "efa":
        message = (
            "/dev/infiniband is the node's own: beside other RDMA adapters libfabric finds no EFA, and NCCL takes TCP"
        )
        fix = f"leave it out: the device plugin brings the devices that {EFA} asks for"
        yield Problem(part.pod.host_devices, message, fix)
