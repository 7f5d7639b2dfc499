"""Facts about launchers: which rank starters and fabrics each has, and the parameters that only a user knows."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import FABRIC_TITLES, Fabric
from rdma_images.core.yaml_file import Strict, YamlPath
from rdma_images.facts.facts_file import Fact, FactsFile, Pattern

RankStarter = Literal["mpirun", "torchrun"]
Kind = Literal["kubernetes", "skypilot", "sagemaker", "slurm", "docker", "other"]


class Parameter(Strict):
    """A value that only the user knows, given as --param; `form` is a pattern."""

    description: str
    form: Pattern
    default: str | None = None
    optional: bool = False
    only_fabric: Fabric | None = None
    rank_starter: RankStarter | None = None  # with which alone the job uses it
    several_interfaces: bool = False  # only where a node has several interfaces
    kinds: tuple[Kind, ...] | None = None  # of the launchers that it means something to; None for all

    def applies(self, fabric: Fabric, interfaces: int, kind: Kind) -> bool:
        """Return whether a job of this fabric and launcher has this parameter."""
        has_interfaces = interfaces > 1 or not self.several_interfaces
        return self.only_fabric in (None, fabric) and has_interfaces and (self.kinds is None or kind in self.kinds)

    @property
    def when(self) -> str:
        """Return when the parameter is required, or its default."""
        if not self.is_required:
            return self.default or ""
        fabric = f" on {FABRIC_TITLES[self.only_fabric]}" if self.only_fabric else ""
        return f"required{fabric}{', with several interfaces' if self.several_interfaces else ''}"

    @property
    def is_required(self) -> bool:
        """Return whether the user must give a value."""
        return self.default is None and not self.optional


class PodResources(Fact):
    """The requests of a pod with all GPUs of a node."""

    hugepages: int  # MiB
    memory: int  # MiB for each GPU, of a measurement
    training_memory_share: float  # the share of a node's memory, of a training


class LauncherVariable(Fact):
    """An environment variable of a job, and where it is needed."""

    name: str
    value: str  # {cidr} and {logs} stand for what the job knows
    why: str
    fabric: Fabric | None = None
    network: Literal["host", "pod"] | None = None
    interfaces: Literal["one", "several"] | None = None
    instances: Pattern | None = None
    restarts: bool = False  # only in a job whose torchrun starts failed ranks again

    def is_needed(self, fabric: Fabric, network: str, interfaces: int, instance: str, restarts: bool) -> bool:
        """Return whether a job on such nodes sets it. `restarts`: torchrun starts failed ranks again."""
        interface_count = "several" if interfaces > 1 else "one"
        return (
            self.fabric in (None, fabric)
            and self.network in (None, network)
            and self.interfaces in (None, interface_count)
            and (self.instances is None or re.fullmatch(self.instances, instance) is not None)
            and (restarts or not self.restarts)
        )


class RunMethod(Strict):
    """The method of submitting and following a job.

    `file` is submitted, and a "script" ends with the job. `object` and `pods` are of Kubernetes: the resource, as
    kubectl names it, and the labels of its pods, where {name} is the job's.
    """

    runner: Literal["kubectl", "arena", "skypilot", "sagemaker", "slurm", "docker", "script"]
    file: str
    object: str = ""
    pods: str = ""


class Launcher(Fact):
    """A launcher of jobs; its templates are in jobs/<name>/."""

    summary: str
    kind: Kind = "other"
    run: RunMethod | None = None  # None where only the README knows
    rank_starters: tuple[RankStarter, ...]
    restarts: Literal["launcher", "torchrun"] = "launcher"  # who starts a failed attempt again
    fabrics: tuple[Fabric, ...]
    min_nodes: int = 1  # on which it can start a job
    version: str = ""  # of the launcher that the templates are right for
    instances: Pattern | None = None  # for the only types that it has
    image: Pattern | None = None  # for the only images that it starts
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    fields: dict[str, str] = Field(default_factory=dict)  # of jobs.yaml, those that it has: how it does each
    unsupported_fields: dict[str, str] = Field(default_factory=dict)  # of those that it has not: why, or what to do

    @model_validator(mode="before")
    @classmethod
    def _add_pod_fields(cls, written: Any) -> Any:
        """Put the fields of `pod-fields`, which launchers share, among the launcher's own."""
        if not isinstance(written, dict) or "pod-fields" not in written:
            return written
        rest = {key: value for key, value in written.items() if key != "pod-fields"}
        return {**rest, "fields": {**written["pod-fields"], **written.get("fields", {})}}


class ClusterMaker(Fact):
    """A maker of clusters; its templates are in jobs/<name>/."""

    summary: str
    fabrics: tuple[Fabric, ...]
    parameters: dict[str, Parameter] = Field(default_factory=dict)


class Launchers(FactsFile):
    """facts/launchers.yaml."""

    FILE = "launchers.yaml"

    pods: PodResources
    variables: dict[str, LauncherVariable]
    parameters: dict[str, Parameter]  # of every launcher
    fields: dict[str, str]  # the fields of a job: their meaning, by name
    launchers: dict[str, Launcher]
    clusters: dict[str, ClusterMaker]

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield also each name that means two things, or nothing."""
        yield from super().problems()
        for name, launcher in self.launchers.items():
            for parameter in launcher.parameters.keys() & self.parameters.keys():
                yield ("launchers", name, "parameters", parameter), "every launcher has this parameter: remove it"
            for field in launcher.fields.keys() - self.fields.keys():
                yield ("launchers", name, "fields", field), f"no field of a job: {suggestion(field, self.fields)}"
            for field in launcher.unsupported_fields:
                if field in launcher.fields or field not in self.fields:
                    yield ("launchers", name, "without", field), "no field of a job that this launcher lacks: remove it"


def parse_parameters(parameters: Mapping[str, Parameter], values: Mapping[str, str], subject: str) -> dict[str, str]:
    """Return the parameters with their defaults; errors call their launcher `subject`.

    Raises RefusedError for one that is not known or not of its form, and for all that are missing at once.
    """
    for name, value in values.items():
        if name not in parameters:
            raise RefusedError(f"--param {name}: {subject} takes no such parameter\n{suggestion(name, parameters)}")
        if not re.fullmatch(parameters[name].form, value):
            raise RefusedError(
                f"--param {name}={value}: not of the form {parameters[name].form}\ngive {parameters[name].description}"
            )
    missing_rows = {name: row for name, row in parameters.items() if row.is_required and name not in values}
    if missing_rows:
        lines = [f"  --param {name}=…  {row.description}" for name, row in missing_rows.items()]
        raise RefusedError("\n".join([f"{subject} cannot know, and needs:", *lines]))
    defaults = {name: row.default for name, row in parameters.items() if row.default is not None}
    return {**defaults, **values}
