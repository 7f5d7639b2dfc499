"""The resources that a job requests of a node, and whether the node has them."""

from collections.abc import Iterator, Mapping

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Fabric
from rdma_images.facts.instances import InstanceType, NodeResources
from rdma_images.facts.launchers import PodResources
from rdma_images.jobs.write.job import Counts

RESERVED_SHARE = 0.1  # of a node's memory, for its system and the kubelet
PAGE = 2  # MiB
RESOURCES: Mapping[Fabric, str] = {"efa": "vpc.amazonaws.com/efa", "erdma": "aliyun/erdma"}


def part_counts(
    node: InstanceType, gpus: int, reserve: NodeResources, pods: PodResources, training: bool, memory: int | None
) -> Counts:
    """Return the resources of a job's part that takes `gpus` of a node's GPUs.

    Interfaces and huge pages are the share of the GPUs, rounded down, with one interface at least. `memory` in MiB is
    the user's; without it a training takes its share of the node's and a measurement what AWS's manifest asks for.
    Raises RefusedError for GPUs that the node does not have, and for memory that it cannot give.

    Args:
        reserve: What the node sets aside for its system.
    """
    if not 1 <= gpus <= node.gpus:
        raise RefusedError(f"gpus {gpus}: the instance type has {node.gpus} GPUs\nask for 1 to {node.gpus}")
    share = gpus / node.gpus
    usual = int(node.memory * 1024 * share * pods.training) if training else gpus * pods.memory
    requested = Counts(
        gpus=gpus,
        interfaces=_interfaces(node, gpus),
        hugepages=int(min(pods.hugepages, reserve.hugepages) * share) // PAGE * PAGE,
        memory=memory or min(usual, int(node.memory * 1024 * share * pods.training)),
    )
    for problem in exceeded_resources(requested, node, reserve):
        raise RefusedError(f"--param memory={memory}: {problem}\nask for less")
    return requested


def exceeded_resources(requested: Counts, node: InstanceType, reserve: NodeResources) -> Iterator[str]:
    """Yield a sentence for each resource that is requested and that the node does not have."""
    all_interfaces = _interfaces(node, node.gpus)
    if requested.gpus > node.gpus:
        yield f"{requested.gpus} GPUs, and the node has {node.gpus}"
    if requested.interfaces > all_interfaces:
        yield f"{requested.interfaces} interfaces, and the node has {all_interfaces}"
    if requested.hugepages > reserve.hugepages:
        yield f"{requested.hugepages} MiB of huge pages, and the node has {reserve.hugepages}"
    available = int(node.memory * 1024 * (1 - RESERVED_SHARE)) - reserve.hugepages
    if requested.memory > available:
        yield f"{requested.memory} MiB of memory, and the node has {available} left for pods"


def resource_name(fabric: Fabric) -> str:
    """Return what Kubernetes calls an interface of the fabric."""
    return RESOURCES[fabric]


def _interfaces(node: InstanceType, gpus: int) -> int:
    """Return the GPUs' share of EFA interfaces; for eRDMA one slot of the cluster's."""
    return 1 if node.fabric == "erdma" else max(1, node.interfaces * gpus // node.gpus)
