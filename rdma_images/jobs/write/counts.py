"""The resources that a job requests of a node."""

from collections.abc import Mapping

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Fabric
from rdma_images.facts.instances import InstanceType, NodeResources
from rdma_images.facts.launchers import PodResources
from rdma_images.jobs.write.job import Counts

PAGE = 2  # MiB
# What Kubernetes calls an interface of a fabric.
RESOURCES: Mapping[Fabric, str] = {"efa": "vpc.amazonaws.com/efa", "erdma": "aliyun/erdma"}


def pod_resources(
    node: InstanceType, gpus: int, reserve: NodeResources, pods: PodResources, training: bool, memory: int | None
) -> Counts:
    """Return the resources of a job's part that takes `gpus` of a node's GPUs.

    EFA interfaces and huge pages are the share of the GPUs, rounded down, with one interface at least; of eRDMA's slots
    it is one. `memory` in MiB is the user's; without it a training takes its share of the node's and a measurement what
    AWS's manifest asks for. Raises RefusedError for GPUs that the node does not have.

    Args:
        reserve: What the node sets aside for its system.
    """
    if not 1 <= gpus <= node.gpus:
        raise RefusedError(f"gpus {gpus}: the instance type has {node.gpus} GPUs\nask for 1 to {node.gpus}")
    share = gpus / node.gpus
    usual = int(node.memory * 1024 * share * pods.training_memory_share) if training else gpus * pods.memory
    return Counts(
        gpus=gpus,
        interfaces=1 if node.fabric == "erdma" else max(1, node.interfaces * gpus // node.gpus),
        hugepages=int(min(pods.hugepages, reserve.hugepages) * share) // PAGE * PAGE,
        memory=memory or min(usual, int(node.memory * 1024 * share * pods.training_memory_share)),
    )
