"""A server in parts, as prefill, decode and a router: a job for each, with nodes, GPUs and adapters of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import KnownImage
from rdma_images.facts.instances import INTERFACE_RESOURCES
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import decisions
from rdma_images.jobs.write.job import Job, JobRequest, JobValue, NodeRequest

DEFAULT_PORT = 8000
NO_REQUEST = NodeRequest(gpus=0, interfaces=0, hugepages=0, memory=0)
PER_NODE_VALUES = frozenset(
    {"gpus", "hugepages-2Mi", "memory", *INTERFACE_RESOURCES.values()}
)  # the values that are about counts


def decide_server(request: JobRequest, project: Project, planned: KnownImage | None = None) -> Job:
    """Return the job of a request with roles. Raises RefusedError for what cannot work."""
    if request.nodes != 1 or request.gpus or request.command or "replicas" in request.parameters:
        raise RefusedError(
            "the job has roles, each with its own nodes, gpus, replicas and command\nremove those beside the roles"
        )
    if idle := next((name for name, role in request.roles.items() if not role.command), None):
        raise RefusedError(f"role {idle}: it has no command\nwrite one, or name the job's `model`")
    if all(role.gpus == 0 for role in request.roles.values()):
        raise RefusedError("no role of the job has GPUs\nleave out `gpus: 0` where a model runs")
    name, role_ports = request.name or "server", ports(request, project)
    roles = [_role(name, role, role_ports[role], request, project, planned) for role in request.roles]
    launcher = project.facts.launchers.launchers[request.launcher]
    nodes = [role.nodes * int(role.parameters["replicas"]) if role.per_node.gpus else 0 for role in roles]
    roles = [replace(role, first_node=first) for role, first in zip(roles, accumulate([0, *nodes]), strict=False)]
    urls = {role.urls: " ".join(_urls(role)) for role in roles if role.per_node.gpus and launcher.kind == "kubernetes"}
    roles = [replace(role, environment={**urls, **role.environment}) for role in roles]
    largest = max(roles, key=lambda role: role.per_node.gpus)
    parameters = {setting: value for setting, value in largest.parameters.items() if setting != "replicas"}
    shared = set.intersection(*(set(role.environment.items()) for role in roles if role.per_node.gpus))
    return replace(
        largest,
        name=name,
        server="",
        first_node=0,
        nodes=sum(nodes),
        environment={key: value for key, value in largest.environment.items() if (key, value) in shared},
        parameters={**parameters, "port": str(min(role_ports.values()))},
        roles=tuple(replace(role, values=()) for role in roles),  # they are the server's
        values=tuple(_values(roles, urls)),
    )


def ports(request: JobRequest, project: Project) -> dict[str, int]:
    """Return the port that each role answers at.

    Pods have it to themselves. Elsewhere the roles without GPUs share the first node: they have the first ports,
    which clients use, and the other roles the next ones.
    """
    launcher = project.facts.launchers.launchers.get(request.launcher)
    row = launcher.parameters.get("port") if launcher else None
    port = int(request.parameters.get("port") or (row and row.default) or DEFAULT_PORT)
    if launcher and launcher.kind == "kubernetes":
        return dict.fromkeys(request.roles, port)
    fronts = [name for name, role in request.roles.items() if role.gpus == 0]
    return {name: port + (fronts.index(name) if name in fronts else len(fronts)) for name in request.roles}


def _role(server: str, name: str, port: int, request: JobRequest, project: Project, planned: KnownImage | None) -> Job:
    """Return the job of one role, which answers at the port."""
    part, settings = request.roles[name], request.settings
    launch = "plain" if part.gpus == 0 else part.launch or settings.launch
    role_request = replace(
        request,
        name=f"{server}-{name}",
        nodes=part.nodes,
        gpus=part.gpus or None,
        command=part.command,
        settings=replace(settings, launch=launch, env={**settings.env, **part.env}),
    )
    job = decisions.decide_job(role_request, project, planned)
    parameters = {**job.parameters, "replicas": str(part.replicas), "port": str(port)}
    values = (
        *(replace(value, source="roles") if value.name == "nodes" else value for value in job.values),
        JobValue("replicas", str(part.replicas), "as asked for", "roles"),
    )
    job = replace(job, server=server, ready=part.ready, parameters=parameters, values=values)
    return replace(job, per_node=NO_REQUEST, preflight="") if part.gpus == 0 else job


def _urls(role: Job) -> Iterator[str]:
    """Yield the address of each server of a role, by its first pod's name."""
    for number in range(int(role.parameters["replicas"])):
        yield (f"http://{role.name}-{number}.{role.name}.{role.parameters['namespace']}.svc:{role.parameters['port']}")


def _values(roles: list[Job], urls: Mapping[str, str]) -> Iterator[JobValue]:
    """Yield the decisions of each role under its name, and the addresses of its servers."""
    for role in roles:
        values = (value for value in role.values if role.per_node.gpus or value.name not in PER_NODE_VALUES)
        yield from (replace(value, name=f"{role.role}.{value.name}") for value in values)
    for name, addresses in urls.items():
        yield JobValue(name, addresses, "where the servers of that role answer", "roles")
