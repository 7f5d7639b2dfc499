"""A model served with prefill and decode apart: the commands of both and of the router, by the target's packages."""

from collections.abc import Mapping
from dataclasses import replace

from rdma_images.components import package
from rdma_images.components.package import KvTransfer, Serving
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import FABRIC_TITLES, Image
from rdma_images.inputs import target_options
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import server
from rdma_images.jobs.write.job import Job, JobRequest, JobValue
from rdma_images.jobs.write.jobs_file import RoleRequest

ROUTER = "router"


def decide_model_server(request: JobRequest, project: Project) -> Job:
    """Return the job that serves the request's model; what its roles say themselves stays.

    Raises RefusedError for a target that cannot serve it, or not over its fabric.
    """
    if not request.target:
        raise RefusedError(
            "the job has a model, and no target says what serves it\ngive --target, or roles in its place"
        )
    changes = [f"{axis}={value}" for axis, value in request.changes.items()]
    (image,) = target_options.chosen_images(project, [request.target], False, changes)
    engine, serving = _engine(image, project)
    transfer = serving.transfers[image.fabric]
    if transfer.package not in image.components:
        raise RefusedError(
            f"{request.target} has no {transfer.package}, by which {engine} moves KV caches over "
            f"{FABRIC_TITLES[image.fabric]}\nadd it: --set {transfer.package}=newest, or to `default` in matrix.yaml"
        )
    roles = {"prefill": RoleRequest(), "decode": RoleRequest(), ROUTER: RoleRequest(), **request.roles}
    roles[ROUTER] = roles[ROUTER].model_copy(update={"gpus": 0})
    ports = server.ports(replace(request, roles=roles), project)
    node = project.facts.instances.find(request.instance)
    for name, role in roles.items():
        if role.command or name not in ("prefill", "decode", ROUTER):
            continue
        gpus = str((role.gpus or node.gpus) * role.nodes)
        values = {"{model}": request.model, "{gpus}": gpus, "{port}": str(ports[name])}
        if name == ROUTER:
            roles[name] = _router(role, image, engine, serving, transfer, values)
        else:
            roles[name] = _server(name, role, engine, serving, transfer, values, request)
    job = server.decide_server(replace(request, roles=roles), project, image)
    source = package.package_facts(engine, project.facts).cite(serving)
    version = image.components[transfer.package].version
    reason = f"moves {engine}'s KV caches over {FABRIC_TITLES[image.fabric]}"
    return replace(job, values=(*job.values, JobValue("transfer", f"{transfer.package} {version}", reason, source)))


def _engine(image: Image, project: Project) -> tuple[str, Serving]:
    """Return the package of the image that serves models, and how. Raises RefusedError for none."""
    engines = {}
    for name in package.component_names():
        if serving := package.package_facts(name, project.facts).serving:
            engines[name] = serving
    engine = next((name for name in engines if name in image.components), None)
    if engine is None or image.fabric not in engines[engine].transfers:
        raise RefusedError(
            f"{image.target} serves no model: it has neither {' nor '.join(engines)}\n"
            f"choose --target {image.fabric}-vllm or {image.fabric}-sglang"
        )
    return engine, engines[engine]


def _server(
    name: str,
    role: RoleRequest,
    engine: str,
    serving: Serving,
    transfer: KvTransfer,
    values: Mapping[str, str],
    request: JobRequest,
) -> RoleRequest:
    """Return prefill or decode with its command and variables. Raises RefusedError for nodes that it cannot span."""
    if role.nodes > 1 and not serving.several_nodes:
        raise RefusedError(
            f"role {name}: nodes {role.nodes}, and no command is known by which {engine} spans nodes\n"
            "ask for more replicas of one node, or write the role's command"
        )
    start = f"{transfer.start_line} {serving.several_nodes}" if role.nodes > 1 else transfer.start_line
    words = (*_filled(serving.server, values), *(transfer.prefill if name == "prefill" else transfer.decode))
    env = {variable: value for variable, value in transfer.env.items() if variable not in request.settings.env}
    command = ("sh", "-c", start, name, *words, *role.arguments)
    return role.model_copy(update={"command": command, "launch": "plain", "env": {**env, **role.env}})


def _router(
    role: RoleRequest, image: Image, engine: str, serving: Serving, transfer: KvTransfer, values: Mapping[str, str]
) -> RoleRequest:
    """Return the router with its command. Raises RefusedError where the image has none."""
    program = f"{engine}-router"
    if not any(requirement.startswith(program) for requirement in image.python_packages):
        raise RefusedError(
            f"{image.target} has no {program}\n"
            f"add `python-packages: [{program}]` to the target, or write the router's command"
        )
    port = f" {transfer.bootstrap}" if transfer.bootstrap else ""
    start = f'exec "$@" $(printf -- "--prefill %s{port} " $PREFILL_URLS) $(printf -- "--decode %s " $DECODE_URLS)'
    words = (*_filled(serving.router, values), *transfer.router)
    command = ("sh", "-c", start, ROUTER, *words, *role.arguments)
    return role.model_copy(update={"command": command, "launch": "plain", "ready": role.ready or serving.ready})


def _filled(words: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return words with the job's values in the places of their names."""
    return tuple(values.get(word, word) for word in words)
