"""The files that make a cluster for jobs on an instance type."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts.instances import InstanceType
from rdma_images.facts.launchers import parse_parameters
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import counts, folder, render
from rdma_images.jobs.write.job import JobValue
from rdma_images.jobs.write.work import NAME

REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]")


@dataclass(frozen=True)
class Interface:
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
    interfaces: tuple[Interface, ...]
    hugepages: int  # of 2 MiB, that a node sets aside
    parameters: Mapping[str, str]
    values: tuple[JobValue, ...]


def compose(request: ClusterRequest, project: Project) -> Cluster:
    """Return the cluster of a request. Raises RefusedError for what cannot work."""
    launchers, facts = project.facts.launchers, project.facts
    if request.launcher not in launchers.clusters:
        raise RefusedError(
            f"--launcher {request.launcher}: makes no cluster\n{suggestion(request.launcher, launchers.clusters)}"
        )
    maker = launchers.clusters[request.launcher]
    node = facts.instances.find(request.instance)
    if node.fabric not in maker.fabrics:
        raise RefusedError(
            f"{request.instance} has {FABRIC_TITLES[node.fabric]}, and {request.launcher} only makes clusters on AWS\n"
            "choose an --instance with EFA"
        )
    if request.nodes < 1:
        raise RefusedError(f"--nodes {request.nodes}: too few\na cluster has one node or more")
    if not REGION.fullmatch(request.region) or not re.fullmatch(re.escape(request.region) + "[a-z]", request.zone):
        raise RefusedError(
            f"--zone {request.zone} is not in --region {request.region}\n"
            "a zone is its region and one letter, such as us-west-2a in us-west-2"
        )
    if request.name and not NAME.fullmatch(request.name):
        raise RefusedError(f"--name {request.name}: not a cluster's name\nwrite lower-case letters, digits and hyphens")
    values = parse_parameters(maker.parameters, request.parameters, f"launcher {request.launcher}")
    template = node.first_card == "ena" or values.get("interfaces") == "efa-only" or "launch-template" in values
    for problem in _parameter_problems(request, values, node, template):
        raise RefusedError(problem)
    cluster = Cluster(
        name=request.name or f"{request.instance.replace('.', '-')}-cluster",
        launcher=request.launcher,
        instance=request.instance.removeprefix("ml."),
        nodes=request.nodes,
        region=request.region,
        zone=request.zone,
        template=template,
        interfaces=tuple(_recommended_interfaces(node)) if template else tuple(_eksctl_interfaces(node)),
        hugepages=facts.instances.nodes["efa"].hugepages // counts.PAGE,
        parameters=values,
        values=(),
    )
    return replace(cluster, values=tuple(_values(cluster, node, project)))


def _parameter_problems(
    request: ClusterRequest, values: Mapping[str, str], node: InstanceType, template: bool
) -> Iterator[str]:
    """Yield why parameters do not go together, or not with the instance type.

    `template`: with a launch template.
    """
    second = values["second-zone"]
    if second == request.zone or not second.startswith(request.region):
        yield f"--param second-zone={second}: no second zone\nname another zone of {request.region} than {request.zone}"
    if values["devices"] == "dra" and int(values["version"].split(".")[1]) < 34:
        yield (
            f"--param devices=dra: EKS has it from Kubernetes 1.34 on, not in {values['version']}\n"
            "give --param version=1.34 or later"
        )
    if "capacity-block" in values and "capacity-reservation" in values:
        yield "--param capacity-block and --param capacity-reservation: nodes run in one of both\nleave one out"
    if "capacity-block" in values and template:
        conflicting = next((name for name in ("launch-template", "interfaces") if name in values), "")
        fix = "choose an --instance whose first card takes EFA, such as p5.48xlarge"
        yield (
            f"--param capacity-block: {request.instance} with these interfaces needs a launch template, "
            "and a node group of a Capacity Block is made without one here\n"
            + (f"leave --param {conflicting} out" if conflicting and node.first_card != "ena" else fix)
        )
    if values.get("interfaces") == "efa" and node.first_card == "ena":
        yield (
            f"--param interfaces=efa: eksctl puts an EFA on each card, and card 0 of {request.instance} takes none\n"
            "leave it out: the cluster is then made with a launch template"
        )


def write_cluster(request: ClusterRequest, project: Project, out: str = "") -> tuple[Cluster, Path]:
    """Write the cluster's files, all or none; returns it with its folder."""
    cluster = compose(request, project)
    path = folder.job_folder(cluster.name, out)
    texts = render.render_templates(cluster.launcher, {"cluster": cluster})
    note = json.dumps({"schema": 1, **asdict(cluster), "files": sorted(texts)}, indent=2) + "\n"
    folder.write(path, {**texts, folder.JOB_FILE: note})
    return cluster, path


def _recommended_interfaces(node: InstanceType) -> Iterator[Interface]:
    """Yield EC2's recommendation: one address a node, and EFA without one on each card."""
    yield Interface(0, 0, "interface")
    if node.first_card == "rdma":
        yield Interface(0, 1, "efa-only")
    yield from (Interface(card, 0, "efa-only") for card in range(1, node.cards))


def _eksctl_interfaces(node: InstanceType) -> Iterator[Interface]:
    """Yield what eksctl makes of efaEnabled: EFA with an address on every card."""
    yield Interface(0, 0, "efa")
    yield from (Interface(card, 1, "efa") for card in range(1, node.cards))


def _values(cluster: Cluster, node: InstanceType, project: Project) -> Iterator[JobValue]:
    launchers = project.facts.launchers
    maker = launchers.clusters[cluster.launcher]
    kinds = [interface.kind for interface in cluster.interfaces]
    reason = (
        "one address a node, EFA without address on each card that takes it"
        if cluster.template
        else "what efaEnabled makes: an address for each card"
    )
    source = launchers.cite(maker, "parameters" if cluster.template else "")
    yield JobValue("interfaces", ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)), reason, source)
    node_facts = project.facts.instances.nodes["efa"]
    yield JobValue(
        "hugepages", f"{cluster.hugepages} of 2 MiB", "what pods ask for", project.facts.instances.cite(node_facts)
    )
    yield JobValue("zone", cluster.zone, "EFA does not leave a zone", "--zone")
    yield JobValue("cards", str(node.cards), "network cards of the type", project.facts.instances.cite(node))
