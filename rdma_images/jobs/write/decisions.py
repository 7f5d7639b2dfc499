"""From a request to a job: every count, variable and parameter decided, with its reason and source."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rdma_images.build import preflight_folder
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import Fabric, KnownImage
from rdma_images.facts import Facts
from rdma_images.facts.instances import INTERFACE_RESOURCES, InstanceType
from rdma_images.facts.launchers import Parameter, parse_parameters
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import job_image, node_request, overrides
from rdma_images.jobs.write.job import Job, JobFolder, JobRequest, JobValue, NodeRequest
from rdma_images.jobs.write.job_inputs import (
    JobInputs,
    job_inputs,
    rank_restarts,
    refuse_combinations,
    refuse_unknown_fields,
)
from rdma_images.jobs.write.job_settings import NAME, Code, JobSettings, read_code
from rdma_images.plan import image_settings

PYTHON = re.compile(r"(.*/)?python[0-9.]*")
WITH_RESOURCES = ("kubernetes", "skypilot")  # kinds of launchers whose pods ask for them
CODE_FOLDER, PREFLIGHT_FOLDER = "code", "preflight"  # in a job's folder, and the ends of their paths on SageMaker
SAGEMAKER_DATA = "/opt/ml/input/data"
CHECKPOINT_DIR = "CHECKPOINT_DIR"  # a variable of the ranks
TCP = "-tcp"  # after the name of a job
MAX_NAME_LENGTH = 45  # characters: Kubernetes adds "-launcher" and five of its own, and has 63


def decide_job(request: JobRequest, project: Project, planned: KnownImage | None = None) -> Job:
    """Decide a job; write nothing.

    Args:
        request: The user's options, as typed or from jobs.yaml.
        project: The matrix, from which the image of a target is planned, and the facts.

    Returns:
        The job; `values` has the reason and the source of its image, counts and variables.

    Raises:
        RefusedError: A field, a parameter or a value is unknown, missing, or not for this launcher; or the launcher,
            the image and the instance type do not go together.
    """
    facts, settings = project.facts, request.settings
    inputs = job_inputs(request, project, planned)
    refuse_unknown_fields(request, inputs.launcher, facts)
    refuse_combinations(request, inputs)
    overrides.refuse_overrides(settings.env, inputs.image.environment, inputs.instance_type.fabric)
    parameters = parse_parameters(_parameters(inputs, facts), request.parameters, f"launcher {request.launcher}")
    reference, source = job_image.resolve_reference(inputs.image, request.image, inputs.launcher.image, request.tcp)
    per_node = node_request.share_of_node(
        inputs.instance_type,
        request.gpus or inputs.instance_type.gpus,
        facts.instances.nodes[inputs.instance_type.fabric],
        facts.launchers.pods,
        inputs.rank_starter == "torchrun",
        int(parameters["memory"]) if "memory" in parameters else None,
    )
    variables = [
        *(row for row in _variables(request, inputs, parameters, facts) if row.name not in settings.env),
        *_checkpoint_variable(settings, inputs),
    ]
    values = (
        JobValue("image", reference, "by digest: a tag can be moved while nodes pull it", source),
        *_count_values(request.nodes, per_node, inputs, facts),
        *variables,
        *_settings_values(settings, inputs),
    )
    command = job_image.rank_command(inputs.image, inputs.rank_starter, settings.launch, request.command, facts)
    environment = {**{variable.name: variable.value for variable in variables}, **settings.env}
    job = _compose(request, inputs, reference, per_node, parameters)
    return replace(job, command=command, environment=environment, values=values)


def _compose(
    request: JobRequest, inputs: JobInputs, reference: str, per_node: NodeRequest, parameters: Mapping[str, str]
) -> Job:
    """Return the job without what its ranks run, their variables, and the reasons for what was decided."""
    settings, folders = request.settings, tuple(_folders(request, inputs))
    user = inputs.image.additions.user if inputs.image.additions else None
    return Job(
        name=_name(request, inputs),
        launcher=request.launcher,
        target=request.target,
        fabric=inputs.instance_type.fabric,
        architecture=inputs.instance_type.architecture,
        image=reference,
        instance=request.instance if request.instance.startswith("ml.") else inputs.instance,
        nodes=request.nodes,
        rank_starter=inputs.rank_starter,
        per_node=per_node,
        device_count=inputs.instance_type.interfaces,
        gpu=inputs.instance_type.gpu or "",
        gpu_memory=inputs.instance_type.gpu_memory,
        command=(),
        mpirun=job_image.mpirun(inputs.image) if inputs.rank_starter == "mpirun" else "",
        environment={},
        image_environment=inputs.image.environment,
        docker=_docker_options(inputs.image, per_node.gpus, inputs.instance_type),
        parameters=parameters,
        tcp=request.tcp,
        values=(),
        settings=replace(settings, code=Code(CODE_FOLDER, settings.code.to) if settings.code else None),
        preflight=_preflight(request, folders),
        rank_restarts=rank_restarts(request, inputs),
        folders=folders,
        user=user.name if user else "",
        home=user.home if user else "/root",
    )


def _parameters(inputs: JobInputs, facts: Facts) -> dict[str, Parameter]:
    """Return the parameters that the launcher takes for this kind of node, by name."""
    return {
        name: row
        for name, row in {**facts.launchers.parameters, **inputs.launcher.parameters}.items()
        if row.applies(inputs.instance_type.fabric, inputs.instance_type.interfaces, inputs.launcher.kind)
    }


def _settings_values(settings: JobSettings, inputs: JobInputs) -> Iterator[JobValue]:
    """Yield how the launcher brings code, and how it restarts and limits the job."""
    if settings.code:
        yield JobValue("code", settings.code.to, inputs.launcher.fields["code"], "code")
    if settings.restarts:
        yield JobValue("restarts", str(settings.restarts), inputs.launcher.fields["restarts"], "restarts")
    if settings.time:
        yield JobValue("time", f"{settings.time} s", inputs.launcher.fields["time"], "time")


def _folders(request: JobRequest, inputs: JobInputs) -> Iterator[JobFolder]:
    """Yield the folders that the containers see: the user's code, and the preflight where the image has none.

    Raises RefusedError for code that cannot be copied, and for a command whose script is not in it.
    """
    is_sagemaker = inputs.launcher.kind == "sagemaker"
    if code := request.settings.code:
        files = tuple(read_code(code, inputs.launcher.kind == "kubernetes"))
        script = _script(request.command)
        if script.endswith(".py") and not script.startswith("/") and posixpath.normpath(script) not in files:
            raise RefusedError(f"the command runs {script}, which is not in {code.folder}\n{suggestion(script, files)}")
        yield JobFolder(CODE_FOLDER, f"{SAGEMAKER_DATA}/{CODE_FOLDER}" if is_sagemaker else code.to, files)
    if request.preflight and not request.tcp and not request.target:
        to = f"{SAGEMAKER_DATA}/{PREFLIGHT_FOLDER}" if is_sagemaker else preflight_folder.FOLDER
        yield JobFolder(PREFLIGHT_FOLDER, to, tuple(preflight_folder.files()))


def _script(command: Sequence[str]) -> str:
    """Return the program of a command, or the first word after Python's options; "" for none."""
    words = command[1:] if command and PYTHON.fullmatch(command[0]) else command[:1]
    return next((word for word in words if not word.startswith("-")), "")


def _preflight(request: JobRequest, folders: Sequence[JobFolder]) -> str:
    """Return the program that checks a node before the command, as words of sh; "" for none.

    Images of targets have it. A job over TCP does without: it runs where the fabric is missing.
    """
    if request.tcp or not request.preflight:
        return ""
    mounted = next((folder.to for folder in folders if folder.name == PREFLIGHT_FOLDER), "")
    return f"sh {mounted}/rdma-preflight" if mounted else "rdma-preflight"


def _variables(request: JobRequest, inputs: JobInputs, chosen: Mapping[str, str], facts: Facts) -> Iterator[JobValue]:
    """Yield the variables of the job's network, instance type and launcher."""
    launchers = facts.launchers
    for row in launchers.variables.values():
        if row.is_needed(
            inputs.instance_type.fabric,
            "host" if inputs.launcher.kind in ("slurm", "docker") else "pod",
            inputs.instance_type.interfaces,
            inputs.instance,
            rank_restarts(request, inputs) > 0,
        ):
            value = row.value.format(cidr=chosen.get("cidr"))
            interface = chosen.get("interface") if row.name == "NCCL_SOCKET_IFNAME" else None
            yield JobValue(
                row.name, interface or value, row.why, "param interface" if interface else launchers.cite(row)
            )
    if request.tcp:
        yield from _tcp_variables(inputs.instance_type.fabric, facts)


def _checkpoint_variable(settings: JobSettings, inputs: JobInputs) -> Iterator[JobValue]:
    """Yield the variable that names the folder of checkpoints.

    Raises RefusedError for a folder that would end with its container.
    """
    path = settings.checkpoints
    is_mounted = any(f"{path}/".startswith(f"{mount.to}/") and not mount.read_only for mount in settings.mounts)
    if path and not is_mounted and inputs.launcher.kind != "sagemaker":
        raise RefusedError(
            f"checkpoints {path}: no mount that can be written is there, so it would end with its container\n"
            f"choose a folder below a mount, or add one, as in --mount /SHARED/FOLDER:{path}"
        )
    if path and CHECKPOINT_DIR not in settings.env:
        yield JobValue(CHECKPOINT_DIR, path, "where the ranks leave their checkpoints", "checkpoints")


def _tcp_variables(fabric: Fabric, facts: Facts) -> Iterator[JobValue]:
    """Yield the variables that select TCP, against the network that the image requires."""
    unrestricted = facts.running.without_fabric
    reason = "this job measures TCP, to compare with"
    overrides = {image_settings.NETWORK: unrestricted.network} | (
        {image_settings.PROVIDER: unrestricted.provider} if fabric == "efa" else {}
    )
    for name, value in overrides.items():
        yield JobValue(name, str(value), reason, facts.running.cite(unrestricted))


def job_over_tcp(job: Job, facts: Facts) -> Job:
    """Return the same job over TCP, to compare with."""
    lifted = tuple(_tcp_variables(job.fabric, facts))
    return replace(
        job,
        name=f"{job.name[: MAX_NAME_LENGTH - len(TCP)].rstrip('-')}{TCP}",
        tcp=True,
        preflight="",
        folders=tuple(folder for folder in job.folders if folder.name != PREFLIGHT_FOLDER),
        environment={**job.environment, **{variable.name: variable.value for variable in lifted}},
        values=(*job.values, *lifted),
    )


def _count_values(nodes: int, per_node: NodeRequest, inputs: JobInputs, facts: Facts) -> Iterator[JobValue]:
    """Yield the counts with their sources; for pods also their other resources."""
    node, pods = inputs.instance_type, facts.launchers.cite(facts.launchers.pods)
    source = facts.instances.cite(node)
    yield JobValue("nodes", str(nodes), "as asked for", "nodes")
    yield JobValue("gpus", str(per_node.gpus), f"of {node.gpus} on a node; a rank each", source)
    if inputs.launcher.kind not in WITH_RESOURCES:
        return
    slot = f"one slot; the controller's allocateAllDevices says whether it brings all {node.interfaces} devices"
    reason = f"the share of the GPUs in the node's {node.interfaces}" if node.fabric == "efa" else slot
    yield JobValue(INTERFACE_RESOURCES[node.fabric], str(per_node.interfaces), reason, source)
    if per_node.hugepages:
        yield JobValue("hugepages-2Mi", f"{per_node.hugepages} MiB", "libfabric keeps its buffers in them", pods)
    yield JobValue("memory", f"{per_node.memory} MiB", "limit and request; /dev/shm counts as memory", pods)


def _docker_options(planned: KnownImage, gpus: int, node: InstanceType) -> tuple[str, ...]:
    """Return the image's options of `docker run`, with as many GPUs as the job has."""
    options = {
        setting.name: setting.docker for setting in planned.run_settings if setting.docker and "." not in setting.name
    }
    if gpus < node.gpus:
        options["gpus"] = f"--gpus={gpus}"
    return tuple(options.values())


def _name(request: JobRequest, inputs: JobInputs) -> str:
    """Return the job's name: the request's, or one of target, instance type and nodes."""
    kind = inputs.instance.removeprefix("ecs.").replace(".", "-")
    name = request.name or f"{request.target or 'job'}-{kind}-{request.nodes}{TCP if request.tcp else ''}"
    if not NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise RefusedError(
            f"--name {name}: not a job's name\n"
            f"write up to {MAX_NAME_LENGTH} lower-case letters, digits and hyphens, a letter first"
        )
    return name
