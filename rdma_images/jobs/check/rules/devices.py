"""Rules on the RDMA devices that pods get, and the memory that they may lock."""

import re
from collections.abc import Iterator

from rdma_images.core import versions
from rdma_images.jobs.check.job_part import JobPart
from rdma_images.jobs.check.rules.rule import EFA, ERDMA, CheckContext, Problem, rule

VERBS = re.compile(r"NCCL_IB_(?:HCA|GID_INDEX|TC|SL)")
RDMA_RESOURCE = re.compile(r"rdma|hca|mlnx|sriov|roce|infiniband|efa|/ib", re.IGNORECASE)
PLUGIN = re.compile(r"aws-efa-k8s-device-plugin:v(?P<version>[0-9.]+)")
RDMA_PLUGIN = "ask for the resource of the cluster's RDMA device plugin, as rdma/…, and add the capability IPC_LOCK"


@rule("pod.rdma", "warning", "Mellanox/k8s-rdma-shared-dev-plugin, README: pods ask for its resource, and add IPC_LOCK")
def pods_without_rdma(part: JobPart, _: CheckContext) -> Iterator[Problem]:
    """Report pods for InfiniBand or RoCE without a device, or that may not lock memory."""
    pod = part.pod
    if part.kind != "kubernetes" or not part.gpus or pod.is_privileged or pod.has_claims:
        return
    resources = {name: word for name, word in {**part.requests, **part.limits}.items() if RDMA_RESOURCE.search(name)}
    if pod.host_devices:
        if not resources:
            message = (
                "/dev/infiniband is mounted by its path, and the container is not privileged: it may open no device"
            )
            yield Problem(pod.host_devices, message, RDMA_PLUGIN)
        return
    verbs = next((word for name, word in part.environment.items() if VERBS.fullmatch(name)), None)
    disabled = part.environment.get("NCCL_IB_DISABLE")
    if verbs and not resources and part.node_count > 1 and not (disabled and disabled.text == "1"):
        message = "NCCL_IB_ variables are set, and the pod asks for no RDMA device: NCCL takes TCP"
        yield Problem(verbs, message, RDMA_PLUGIN)
    resource = next((word for name, word in resources.items() if name not in (EFA, ERDMA) and "efa" not in name), None)
    if resource and not pod.may_lock_memory:
        message = "the pod has RDMA devices and no IPC_LOCK: locked memory may be limited, and no queue pair be created"
        yield Problem(resource, message, "add securityContext.capabilities.add: [IPC_LOCK]")


@rule("devices.host-path", "warning", "aws-samples/aws-do-eks pull request 63: the same pod with and without it")
def host_devices(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a hostPath of /dev/infiniband: it brings other adapters, too, which hide EFA."""
    if part.pod.host_devices and context.fabric == "efa":
        message = (
            "/dev/infiniband is the node's own: beside other RDMA adapters libfabric finds no EFA, and NCCL takes TCP"
        )
        fix = f"leave it out: the device plugin brings the devices that {EFA} asks for"
        yield Problem(part.pod.host_devices, message, fix)


@rule("device-plugin.version", "warning", "aws/sagemaker-hyperpod-cli pull request 282")
def stale_device_plugin(part: JobPart, _: CheckContext) -> Iterator[Problem]:
    """Report a device plugin that counts p6-b200's NVLink controllers as EFA."""
    if part.image and (match := PLUGIN.search(part.image.text)) and not versions.at_least(match["version"], "0.5.10"):
        message = f"version {match['version']} counts the NVLink controllers of p6-b200 as EFA: 10 in place of 8"
        yield Problem(part.image, message, "take 0.5.10 or later")
