"""The files that make a cluster for jobs on an instance type."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.facts.instances import InstanceType
from rdma_images.facts.launchers import parse_parameters
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import job_folder, node_request, render
from rdma_images.jobs.write.job import JobValue
from rdma_images.jobs.write.job_settings import NAME

REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]")


@dataclass(frozen=True)
class NodeInterface:
    """A network interface of a node."""

    card: int
    device: int
    kind: str  # "interface", "efa" or "efa-only"


@dataclass(frozen=True)
class ClusterRequest:
    """A request for a cluster, as typed."""

    launcher: str
    instance: str
    nodes: int
    region: str
    zone: str
    name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cluster:
    """A cluster with every decision made."""

    name: str
    launcher: str
    instance: str
    nodes: int
    region: str
    zone: str
    template: bool  # whether its nodes need a launch template
    interfaces: tuple[NodeInterface, ...]
    hugepages: int  # of 2 MiB, that a node sets aside
    parameters: Mapping[str, str]
    values: tuple[JobValue, ...]


def decide_cluster(request: ClusterRequest, project: Project) -> Cluster:
    """Return the cluster of a request. Raises RefusedError for what cannot work."""
    launchers, instances = project.facts.launchers, project.facts.instances
    if request.launcher not in launchers.clusters:
        raise RefusedError(
            f"--launcher {request.launcher}: makes no cluster\n{suggestion(request.launcher, launchers.clusters)}"
        )
    maker, node = launchers.clusters[request.launcher], instances.find(request.instance)
    values = parse_parameters(maker.parameters, request.parameters, f"launcher {request.launcher}")
    template = node.first_card == "ena" or "launch-template" in values
    for problem in _problems(request, values, node, template):
        raise RefusedError(problem)
    interfaces = tuple(_recommended_interfaces(node) if template else _eksctl_interfaces(node))
    kinds = [interface.kind for interface in interfaces]
    reason = "an address for the node, none for EFA" if template else "an address for each card, by efaEnabled"
    return Cluster(
        name=request.name or f"{request.instance.replace('.', '-')}-cluster",
        launcher=request.launcher,
        instance=request.instance.removeprefix("ml."),
        nodes=request.nodes,
        region=request.region,
        zone=request.zone,
        template=template,
        interfaces=interfaces,
        hugepages=instances.nodes["efa"].hugepages // node_request.PAGE,
        parameters=values,
        values=(
            JobValue(
                "interfaces",
                ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)),
                reason,
                launchers.cite(maker, "parameters" if template else ""),
            ),
        ),
    )


def _problems(request: ClusterRequest, values: Mapping[str, str], node: InstanceType, template: bool) -> Iterator[str]:
    """Yield the problems of a request: invalid or contradictory values. `template`: with a launch template."""
    if node.fabric != "efa":
        yield f"{request.instance} has no EFA, and {request.launcher} makes clusters on AWS\nchoose another --instance"
    if not REGION.fullmatch(request.region) or not re.fullmatch(re.escape(request.region) + "[a-z]", request.zone):
        yield (
            f"--zone {request.zone} is not in --region {request.region}\n"
            "a zone is its region and one letter, such as us-west-2a in us-west-2"
        )
    second = values.get("second-zone", "")
    if second and (second == request.zone or second[:-1] != request.region):
        yield (
            f"--param second-zone={second} is not another zone of --region {request.region}\n"
            f"name one beside {request.zone}: EKS wants two"
        )
    if request.name and not NAME.fullmatch(request.name):
        yield f"--name {request.name}: not a cluster's name\nwrite lower-case letters, digits and hyphens"
    if "capacity-block" in values and template:
        yield (
            f"--param capacity-block: {request.instance} with these interfaces needs a launch template, "
            "and a node group of a Capacity Block is made without one here\n"
            "leave --param launch-template out, or choose a type whose first card takes EFA, such as p5.48xlarge"
        )


def write_cluster(request: ClusterRequest, project: Project, out: str = "") -> tuple[Cluster, Path]:
    """Write the cluster's files, all or none; returns it with its folder."""
    cluster = decide_cluster(request, project)
    path = job_folder.output_folder(cluster.name, out)
    texts = render.render_templates(cluster.launcher, {"cluster": cluster})
    note = job_folder.json_text({"schema": 1, **asdict(cluster), "files": sorted(texts)})
    job_folder.write(path, {**texts, job_folder.JOB_FILE: note})
    return cluster, path


def _recommended_interfaces(node: InstanceType) -> Iterator[NodeInterface]:
    """Yield EC2's recommendation: one address a node, and EFA without one on each card."""
    yield NodeInterface(0, 0, "interface")
    if node.first_card == "rdma":
        yield NodeInterface(0, 1, "efa-only")
    yield from (NodeInterface(card, 0, "efa-only") for card in range(1, node.cards))


def _eksctl_interfaces(node: InstanceType) -> Iterator[NodeInterface]:
    """Yield the interfaces that eksctl makes for efaEnabled: EFA with an address on every card."""
    yield NodeInterface(0, 0, "efa")
    yield from (NodeInterface(card, 1, "efa") for card in range(1, node.cards))
