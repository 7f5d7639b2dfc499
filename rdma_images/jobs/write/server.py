"""A server in parts, as prefill, decode and a router: a job for each, with nodes, GPUs and adapters of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rdma_images.core.errors import RefusedError
from rdma_images.inputs.project import Project
from rdma_images.jobs.write.compose import compose as compose_job
from rdma_images.jobs.write.counts import RESOURCES
from rdma_images.jobs.write.job import Counts, Job, JobRequest, JobValue, RoleRequest

NO_COUNTS = Counts(gpus=0, interfaces=0, hugepages=0, memory=0)
COUNTED = frozenset({"gpus", "hugepages-2Mi", "memory", *RESOURCES.values()})  # the values that are about counts


def compose(request: JobRequest, project: Project) -> Job:
    """Return the job of a request with roles. Raises RefusedError for what cannot work."""
    if request.nodes != 1 or request.gpus or request.command or "replicas" in request.parameters:
        raise RefusedError(
            "the job has roles, each with its own nodes, gpus, replicas and command\nremove those beside the roles"
        )
    if idle := next((name for name, role in request.roles.items() if not role.command), None):
        raise RefusedError(f"role {idle}: it has no command\nwrite one, or name the job's `model`")
    if all(role.gpus == 0 for role in request.roles.values()):
        raise RefusedError("no role of the job has GPUs\nleave out `gpus: 0` where a model runs")
    name = request.name or "server"
    roles = [_role(name, role, part, request, project) for role, part in request.roles.items()]
    urls = {_variable(role): " ".join(_urls(role)) for role in roles if role.counts.gpus}
    roles = [replace(role, environment={**urls, **role.environment}) for role in roles]
    first_role = next(role for role in roles if role.counts.gpus)
    return replace(
        first_role,
        name=name,
        server="",
        nodes=sum(role.nodes * int(role.parameters["replicas"]) for role in roles if role.counts.gpus),
        roles=tuple(replace(role, values=()) for role in roles),  # they are the server's
        values=tuple(_values(roles, urls)),
    )


def _role(server: str, name: str, part: RoleRequest, request: JobRequest, project: Project) -> Job:
    """Return the job of one role."""
    launch = part.launch or request.work.launch
    role_request = replace(
        request,
        name=f"{server}-{name}",
        nodes=part.nodes,
        gpus=part.gpus or None,
        command=part.command,
        parameters={**request.parameters, "replicas": str(part.replicas)},
        work=replace(request.work, launch=launch if part.gpus != 0 else "plain", env={**request.work.env, **part.env}),
    )
    job = replace(compose_job(role_request, project), server=server)
    return replace(job, counts=NO_COUNTS, preflight="") if part.gpus == 0 else job


def _variable(role: Job) -> str:
    """Return the variable that has the addresses of a role's servers."""
    return f"{role.role.upper().replace('-', '_')}_URLS"


def _urls(role: Job) -> Iterator[str]:
    """Yield the address of each server of a role, by its first pod's name."""
    for number in range(int(role.parameters["replicas"])):
        yield (f"http://{role.name}-{number}.{role.name}.{role.parameters['namespace']}.svc:{role.parameters['port']}")


def _values(roles: list[Job], urls: Mapping[str, str]) -> Iterator[JobValue]:
    """Yield the decisions of each role under its name, and the addresses of its servers."""
    for role in roles:
        values = (value for value in role.values if role.counts.gpus or value.name not in COUNTED)
        yield from (replace(value, name=f"{role.role}.{value.name}") for value in values)
    for name, addresses in urls.items():
        yield JobValue(name, addresses, "where the servers of that role answer", "roles")
