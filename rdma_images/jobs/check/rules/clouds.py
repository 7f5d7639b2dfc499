"""Rules on what a cloud's own tools make of a job: SkyPilot, SageMaker, eksctl and arena."""

from collections.abc import Iterator

from rdma_images.jobs.check.foreign_job import JobPart
from rdma_images.jobs.check.rules.rule import ERDMA, CheckContext, RuleFinding, is_placeholder, node_name, rule

TRUE = ("true", "yes", "on")  # in YAML 1.1, which SkyPilot reads


@rule("arena.rdma", "error", "kubeflow/arena, charts/pytorchjob; Alibaba Cloud ACK, eRDMA with Arena")
def arena_rdma(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report --rdma: it asks for rdma/hca, which is Lingjun's device and not eRDMA's."""
    if part.kind == "arena" and (word := part.options.get("rdma")):
        yield word, "--rdma asks for rdma/hca, which no eRDMA node has", "write --device=aliyun/erdma=1 in its place"
    if part.kind == "arena" and part.gpus and ERDMA not in part.limits:
        yield part.gpus, f"no --device={ERDMA}=1: the pods get no eRDMA device", f"add --device={ERDMA}=1"


@rule("skypilot.internal", "warning", "skypilot-org/skypilot, sky/clouds/aws.py, make_deploy_resources_variables")
def public_addresses(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report public addresses of SkyPilot's machines on AWS: one interface alone gets one."""
    tier = part.traits.get("network_tier")
    if not _is_on_aws(part) or not (tier and tier.text.lower() == "best"):
        return
    internal = part.traits.get("internal-ips")
    if internal and (internal.text.lower() in TRUE or is_placeholder(internal.text)):
        return
    interfaces = _interfaces(part, context)
    if (part.job_nodes or 0) > 1 and interfaces > 1:
        problem = f"SkyPilot gives a machine with a public address 1 of its {interfaces} EFA interfaces"
        fix = "set aws.use_internal_ips: true, with use_ssm or ssh_proxy_command, in SkyPilot's configuration"
        yield tier, problem, f"{fix}, where it is not there yet"


@rule("skypilot.efa", "error", "skypilot-org/skypilot, sky/clouds/aws.py, make_deploy_resources_variables")
def machines_without_efa(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report SkyPilot's machines on AWS whose network tier brings no EFA interface."""
    tier, cloud = part.traits.get("network_tier"), part.traits.get("infra") or part.traits.get("cloud")
    if not _is_on_aws(part) or not cloud or (tier and (tier.text.lower() == "best" or is_placeholder(tier.text))):
        return
    interfaces = _interfaces(part, context)
    if (part.job_nodes or 0) > 1 and (interfaces > 1 or (context.node and interfaces)):  # else smaller types fit, too
        problem = f"without network_tier: best a machine gets none of its {interfaces} EFA interfaces: NCCL takes TCP"
        yield tier or cloud, problem, "write network_tier: best into resources"


def _is_on_aws(part: JobPart) -> bool:
    """Return whether a SkyPilot task names AWS' machines as its nodes."""
    cloud = part.traits.get("infra") or part.traits.get("cloud")
    return part.kind == "skypilot" and cloud is not None and cloud.text.lower().startswith("aws")


def _interfaces(part: JobPart, context: CheckContext) -> int:
    """Return a machine's EFA interfaces: its type's, or the fewest of types with its GPUs.

    0 if unknown.
    """
    if context.node:
        return context.node.interfaces
    gpu = part.traits.get("gpu")
    types = context.tables.instances.types.values()
    return min(
        (
            row.interfaces
            for row in types
            if gpu
            and row.fabric == "efa"
            and row.gpu == gpu.text.partition("-")[0]
            and part.gpus
            and row.gpus == part.gpus.number
        ),
        default=0,
    )


@rule("sagemaker.vpc", "error", "AWS, SageMaker AI: EFA needs security groups that allow all traffic from themselves")
def without_vpc(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report several hosts with EFA and no VPC: no security group lets them communicate."""
    nodes = part.nodes if part.nodes and (part.nodes.number or 0) > 1 else None
    if nodes and part.kind == "sagemaker" and context.fabric == "efa" and "vpc" not in part.traits:
        yield nodes, f"{nodes.text} hosts and no VpcConfig: EFA has no security group", "add VpcConfig"


@rule(
    "eksctl.efa",
    "error",
    "eksctl-io/eksctl, pkg/cfn/builder/network_interfaces.go and pkg/apis/eksctl.io/v1alpha5/validation.go",
)
def eksctl_efa(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a node group whose nodes get no adapters, or that eksctl cannot make."""
    if part.kind != "eksctl" or not (part.instance and context.node and context.node.fabric == "efa"):
        return
    enabled, template = part.traits.get("efa-enabled"), part.traits.get("launch-template")
    if not template and (not enabled or enabled.text != "true"):
        problem = f"{node_name(part)} has {context.node.interfaces} EFA, and efaEnabled is not set"
        yield part.instance, problem, "write efaEnabled: true"
    if enabled and enabled.text == "true" and context.node.first_card == "ena":
        problem = f"efaEnabled puts EFA on every card, and card 0 of {node_name(part)} takes none"
        yield enabled, problem, "give the node group a launch template, as `invoke cluster` writes it"
    zones = part.traits.get("zones")
    if zones and (zones.number or 0) != 1:
        problem = "EFA works within one zone, and the node group is not held to one"
        yield zones, problem, "name one zone in availabilityZones"
    if not part.traits.get("private"):
        problem = "nodes with several network cards get no public address, and privateNetworking is not set"
        yield part.instance, problem, "write privateNetworking: true"
