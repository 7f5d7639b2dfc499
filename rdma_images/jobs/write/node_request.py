"""The resources that a job requests of a node."""

from rdma_images.core.errors import RefusedError
from rdma_images.facts.instances import InstanceType, NodeResources
from rdma_images.facts.launchers import PodResources
from rdma_images.jobs.write.job import NodeRequest

PAGE = 2  # MiB


def share_of_node(
    node: InstanceType, gpus: int, reserve: NodeResources, pods: PodResources, takes_share: bool, memory: int | None
) -> NodeRequest:
    """Return the resources of a job's part that takes `gpus` of a node's GPUs.

    EFA interfaces and huge pages are the share of the GPUs, rounded down, with one interface at least; of eRDMA's slots
    it is one. Raises RefusedError for GPUs that the node does not have.

    Args:
        reserve: What the node sets aside for its system.
        takes_share: Whether it takes the GPUs' share of the memory, as a training; else what AWS's manifest asks for.
        memory: The user's, in MiB; None for the usual.
    """
    if not 1 <= gpus <= node.gpus:
        raise RefusedError(f"gpus {gpus}: the instance type has {node.gpus} GPUs\nask for 1 to {node.gpus}")
    share = gpus / node.gpus
    memory_share = int(node.memory * 1024 * share * pods.training_memory_share)
    usual_memory = memory_share if takes_share else gpus * pods.memory
    return NodeRequest(
        gpus=gpus,
        interfaces=1 if node.fabric == "erdma" else node.adapters_for(gpus),
        hugepages=int(min(pods.hugepages, reserve.hugepages) * share) // PAGE * PAGE,
        memory=memory or min(usual_memory, memory_share),
    )
