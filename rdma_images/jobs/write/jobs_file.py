"""jobs.yaml: a team's jobs by name. Strict, and without a secret in it."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from rdma_images.core import files, paths, plain, yaml_file
from rdma_images.core.durations import parse_duration
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.yaml_file import Words, must_match
from rdma_images.jobs.write import job_settings
from rdma_images.jobs.write.job import JobRequest
from rdma_images.jobs.write.job_settings import NAME, TOLERATION, Code, JobSettings, Launch, parse_mount
from rdma_images.plan.additions import AbsolutePath, Command, Variables

FILE = "jobs.yaml"
# Bounds of what can be meant: Amazon EKS takes 100,000 nodes in a cluster, and no other launcher more.
MAX_NODES, MAX_REPLICAS, MAX_RESTARTS, MAX_DAYS = 100_000, 1_000, 10_000, 365
OPTIONS = {"mounts": "mount"}  # of fields that are not called like the option for one value
Parsed = TypeVar("Parsed")


def _as_value_error(parse: Callable[[], Parsed]) -> Parsed:
    """Return what `parse` returns. Raises ValueError, for pydantic, for RefusedError."""
    try:
        return parse()
    except RefusedError as error:
        raise ValueError(": ".join(str(error).splitlines())) from None


def _check_secrets(sources: Mapping[str, str]) -> Mapping[str, str]:
    for name, source in sources.items():
        _as_value_error(partial(job_settings.check_secret, name, source))
    return sources


def _check_duration(text: str) -> str:
    if _as_value_error(lambda: parse_duration(text, "time")) > MAX_DAYS * 86400:
        raise ValueError(f"time {text}: more than {MAX_DAYS}d")
    return text


MountText = Annotated[str, AfterValidator(lambda text: _as_value_error(lambda: parse_mount(text)) and text)]
Duration = Annotated[str, AfterValidator(_check_duration)]
Nodes = Annotated[int, Field(ge=1, le=MAX_NODES)]
Name = Annotated[str, must_match(re.compile(r"\S*"), "is no name: write it without spaces")]
Toleration = Annotated[str, must_match(TOLERATION, "is no toleration: write KEY, KEY:EFFECT or KEY=VALUE:EFFECT")]


class RoleRequest(yaml_file.Strict):
    """A part of a server, as prefill, decode or a router; its settings replace the job's."""

    command: Command = Field(
        default=(),
        description="What each node of the part runs, as a list or a line of shell words; without it, what serves "
        "the job's model.",
    )
    arguments: Command = Field(default=(), description="Words after the command that serves the job's model.")
    nodes: Nodes = Field(default=1, description="The nodes of one server of this role.")
    gpus: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="GPUs of each node; by default all. 0: a part without GPUs and fabric, as a router."
    )
    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(default=1, description="How many such servers.")
    launch: Launch | None = Field(default=None, description="What starts the command; without it the job's.")
    env: Variables = Field(default_factory=dict, description="Variables of this role alone.")
    ready: AbsolutePath | Literal[""] = Field(
        default="", description="A path that answers 200 once the part serves; without it, its open port says so."
    )


RoleName = Annotated[str, must_match(NAME, "is no name of a role: write lower-case letters, digits and hyphens")]


class JobEntry(yaml_file.Strict):
    """A job. Fields that its launcher does not support are refused by name."""

    target: str = Field(default="", description="A target of matrix.yaml; or give `image`.")
    image: str = Field(default="", description="host/repository@sha256:…; without it the published one of `target`.")
    launcher: str = Field(default="", description="What starts the job, as mpijob, slurm or docker.")
    instance: str = Field(default="", description="The instance type, as p5.48xlarge.")
    nodes: Nodes = Field(default=1, description="How many nodes.")
    gpus: Annotated[int, Field(ge=1)] | None = Field(default=None, description="GPUs of each node; by default all.")
    command: Command = Field(default=(), description="What each rank runs, as a list or a line of shell words.")
    launch: Launch | None = Field(default=None, description="What starts the ranks of a node; by default torchrun.")
    restarts: Annotated[int, Field(ge=0, le=MAX_RESTARTS)] = Field(
        default=0, description="How often a failed or preempted attempt is started again, from its checkpoint."
    )
    time: Duration | None = Field(default=None, description="How long the job may run: 90s, 30m, 4h or 2d.")
    spot: bool = Field(default=False, description="On spot capacity, which may be taken away.")
    mounts: tuple[MountText, ...] = Field(
        default=(), description=f"Folders of the container, each as SOURCE:PATH[:ro]: {job_settings.MOUNT_FORMS}."
    )
    code: str = Field(
        default="", description="A folder beside jobs.yaml that the command starts in, or FOLDER:/PATH in the image."
    )
    env: Variables = Field(default_factory=dict, description="Variables of the ranks.")
    secrets: Annotated[Variables, AfterValidator(_check_secrets)] = Field(
        default_factory=dict,
        description="Variables by where their value is read when the job starts: env:NAME, file:/PATH, "
        "secret:NAME/KEY of Kubernetes, or secretsmanager:ID of AWS.",
    )
    pull_secrets: Words = Field(default=(), description="Kubernetes Secrets that the image is pulled with.")
    service_account: Name = Field(
        default="", description="The service account of the pods, which may carry an IAM role."
    )
    queue: Name = Field(default="", description="Kueue's LocalQueue, Slurm's partition, SageMaker's training plan.")
    account: Name = Field(default="", description="Slurm's account.")
    priority: Name = Field(default="", description="A PriorityClass of Kubernetes, or a QOS of Slurm.")
    node_selector: dict[str, str] = Field(default_factory=dict, description="Labels that the nodes have.")
    tolerations: tuple[Toleration, ...] = Field(
        default=(), description="Taints that the job runs on: KEY, KEY:EFFECT or KEY=VALUE:EFFECT."
    )
    topology: Name = Field(
        default="",
        description="A label that all nodes share, as topology.k8s.aws/network-node-layer-2; Slurm: switches.",
    )
    checkpoints: AbsolutePath | None = Field(
        default=None, description="A folder in the container that outlives an attempt: below a mount."
    )
    model: str = Field(
        default="",
        description="A model that the target's vLLM or SGLang serves, with the roles prefill, decode and router.",
    )
    roles: dict[RoleName, RoleRequest] = Field(
        default_factory=dict,
        description="The parts of a server, each with nodes, GPUs, replicas and a command of its own, by name.",
    )
    param: dict[str, str] = Field(default_factory=dict, description="Values that only you know, by their names.")
    preflight: bool = Field(default=True, description="Whether each node is checked before the command.")
    tcp: bool = Field(default=False, description="The same job over TCP, to compare with.")


class JobsFile(yaml_file.Document):
    """jobs.yaml."""

    jobs: dict[str, JobEntry] = Field(description="Jobs by name; `job --job NAME` writes one.")


# The fields that have options of their own.
TYPED_FIELDS = ("target", "image", "launcher", "instance", "nodes", "command", "mounts", "env", "param", "roles")


def untyped_fields() -> dict[str, FieldInfo]:
    """Return the fields of a job that have no option of their own, by the name that --field takes."""
    return {name.replace("_", "-"): field for name, field in JobEntry.model_fields.items() if name not in TYPED_FIELDS}


def parse_fields(options: Iterable[str]) -> dict[str, Any]:
    """Return fields of a job as typed: gpus=4, queue=gpu, secrets.HF_TOKEN=env:HF_TOKEN.

    A field that is a list takes one value at a time, and one that is a mapping its key after a dot. Raises RefusedError
    for a field that is not there, and for one of another form.
    """
    fields: dict[str, Any] = {}
    known = untyped_fields()
    for option in options:
        key, equals, value = option.partition("=")
        name, _, inner = key.partition(".")
        field = known.get(name.replace("_", "-"))
        if not equals or field is None:
            raise RefusedError(f"--field {key}: no such field\n{suggestion(name, known)}")
        default = field.get_default(call_default_factory=True)
        if isinstance(default, dict) != bool(inner):
            form = f"{name}.NAME=value" if isinstance(default, dict) else f"{name}=value"
            raise RefusedError(f"--field {key}: is of another form\nwrite {form}")
        attribute = name.replace("-", "_")
        if isinstance(default, dict):
            fields.setdefault(attribute, {})[inner] = value
        elif isinstance(default, tuple):
            fields.setdefault(attribute, []).append(value)
        else:
            fields[attribute] = value
    return fields


def with_options(entry: JobEntry, options: Mapping[str, Any]) -> JobEntry:
    """Return the job with what was typed: lists and mappings grow, others are replaced.

    Raises RefusedError for what is not of its form.
    """
    merged = entry.model_dump(by_alias=False)
    for name, value in options.items():
        if value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            merged[name] = {**merged[name], **value}
        elif isinstance(value, list):
            merged[name] = [*merged[name], *value]
        else:
            merged[name] = value
    try:
        return JobEntry.model_validate(merged)
    except ValidationError as error:
        raise RefusedError("\n".join(_sentence(problem) for problem in error.errors(include_url=False))) from None


def _sentence(problem: Any) -> str:
    """Return pydantic's error about an option, without the value: it may be a secret."""
    field = str(problem["loc"][0])
    name = OPTIONS.get(field, field.replace("_", "-"))
    name = name if field in TYPED_FIELDS else f"field {name}"
    if expected := yaml_file.expectation(problem):
        return f"--{name} {problem['input']}: must be {expected}"
    return f"--{name}: {problem['msg'].removeprefix('Value error, ')}"


def request(entry: JobEntry, command: tuple[str, ...], name: str, **options: Any) -> JobRequest:
    """Return the request for a job of jobs.yaml, or of options alone.

    Args:
        command: What was typed after --; empty for the entry's own.
        name: The job's name; empty for one that is made of target, instance type and nodes.
        options: Fields of JobRequest that no job of jobs.yaml has.

    Raises:
        RefusedError: The job has no launcher or no instance type, or its folder of code is not there.
    """
    try:
        for text in (name, *command):
            plain.check_characters(text)
    except ValueError as error:
        raise RefusedError(f"the command or the name: {error}") from None
    for option in ("launcher", "instance"):
        if not getattr(entry, option):
            raise RefusedError(f"the job has no {option}\ngive --{option}, or write it into {FILE}")
    own = {"name": name, "command": command or entry.command, "parameters": entry.param}
    return JobRequest(**{**_common_fields(entry, JobRequest), **own, "settings": _job_settings(entry), **options})


def _common_fields(entry: JobEntry, request: type[JobRequest] | type[JobSettings]) -> dict[str, Any]:
    """Return the fields of a job that a request has by the same names."""
    return {name: value for name, value in entry if name in request.__dataclass_fields__}


def _job_settings(entry: JobEntry) -> JobSettings:
    code = None
    if entry.code:
        name, target = job_settings.parse_code(entry.code)
        folder = (paths.PROJECT / name).resolve()
        if folder.is_file():
            raise RefusedError(
                f"code {name}: {folder} is a file\nwrite code: {Path(name).parent}, and {folder.name} in the command"
            )
        if not folder.is_dir():
            raise RefusedError(f"code {name}: {folder} is no folder\nname one beside {FILE}, or by its whole path")
        code = Code(str(folder), target)
    parsed = {
        "mounts": tuple(parse_mount(text) for text in entry.mounts),
        "code": code,
        "checkpoints": entry.checkpoints or "",
        "time": parse_duration(entry.time, "time") if entry.time else 0,
    }
    return JobSettings(**{**_common_fields(entry, JobSettings), **parsed})


def load(name: str) -> JobEntry:
    """Return a job of jobs.yaml. Raises RefusedError."""
    path = paths.PROJECT / FILE
    if not files.exists(path):
        raise RefusedError(f"--job {name}: there is no {path}\nwrite one, or give the job as options")
    jobs = yaml_file.load(path, JobsFile).jobs
    if name not in jobs:
        fix = suggestion(name, jobs) if jobs else "it has no job: write one there"
        raise RefusedError(f"--job {name}: not in {path}\n{fix}")
    return jobs[name]
