"""The parts of a job that somebody wrote, as the rules see them, and the findings about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rdma_images.core.yaml_file import ForeignDocument, YamlPath

Kind = Literal["kubernetes", "eksctl", "skypilot", "slurm", "arena", "sagemaker", "docker", "script"]
Network = Literal["pod", "host"]
PodTrait = Literal["networks", "claims", "service", "selector", "name", "pod-names", "runtime", "replaces", "ray"]
PodSetting = Literal["host-network", "dns-policy", "ipc-lock", "mounts", "restart", "tries"]
PodCount = Literal["job-nodes", "mpi-slots", "ranks-placed"]
HostFolder = Literal["host-shm", "host-devices"]
ContainerTrait = Literal["privileged", "devices", "memlock", "default-network", "tensor-parallel", "compose"]
SharedMemory = Literal["default-shm", "disk-shm"]
ScriptTrait = Literal["srun", "lightning", "clean-container", "container-env", "early-rank"]
LostDirective = Literal["late-directive", "lower-directive", "no-shebang", "dos-lines"]
CloudTrait = Literal["network_tier", "infra", "cloud", "run", "gpu", "internal-ips", "vpc"]
NodeGroupTrait = Literal["efa-enabled", "private", "launch-template", "zones"]
# What only some kinds of jobs say, by our own names; where the value says nothing, it is "given".
Trait = (
    PodTrait
    | PodSetting
    | PodCount
    | HostFolder
    | ContainerTrait
    | SharedMemory
    | ScriptTrait
    | LostDirective
    | CloudTrait
    | NodeGroupTrait
)
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class LocatedText:
    """A value as text, and its line, from 1."""

    text: str
    line: int

    @property
    def number(self) -> int | None:
        """Return the value as a whole number of at most ten digits.

        Returns:
            None for others, as a template's ${VARIABLE}.
        """
        return int(self.text[:10]) if self.text.isdecimal() else None


@dataclass(frozen=True)
class YamlNode:
    """A value in a YAML document and its path; None as the value of a path that leads nowhere."""

    document: ForeignDocument
    value: Any
    path: YamlPath = ()

    def lookup(self, *steps: str | int) -> "YamlNode":
        """Return the node that `steps` lead to from here."""
        value = self.value
        for step in steps:
            if isinstance(step, int):
                value = value[step] if isinstance(value, list) else None
            else:
                value = value.get(step) if isinstance(value, dict) else None
        return YamlNode(self.document, value, (*self.path, *steps))

    @property
    def mapping(self) -> dict[str, Any]:
        """Return its value, where that is a mapping; else an empty one."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list["YamlNode"]:
        """Return the entries of a list; none of anything else."""
        return [self.lookup(index) for index in range(len(self.value))] if isinstance(self.value, list) else []

    @property
    def children(self) -> list["YamlNode"]:
        """Return the values of a mapping, or the entries of a list."""
        return [self.lookup(key) for key in self.mapping] or self.items

    @property
    def line(self) -> int:
        """Return the line of the value, from 1, or that of the nearest object around it."""
        return self.document.line(*self.path)

    @property
    def word(self) -> LocatedText | None:
        """Return the value as a word; None for none, and for a mapping or a list."""
        return LocatedText(self.value, self.line) if isinstance(self.value, str) and self.value else None

    @property
    def words(self) -> dict[str, LocatedText]:
        """Return the words of a mapping."""
        return {key: self.lookup(key).with_text(value) for key, value in self.mapping.items() if isinstance(value, str)}

    def with_text(self, text: str) -> LocatedText:
        """Return `text` as a word in the line of this value."""
        return LocatedText(text, self.line)


@dataclass(frozen=True)
class ShellFault:
    """A text that a shell reads otherwise than it is meant, and what to write instead."""

    word: LocatedText
    message: str
    fix: str
    severity: Severity = "error"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A command that starts ranks or servers on this node, by its launcher.

    Options are named without their dashes, with _ for -; a flag's value is "".
    """

    program: str  # as in PROGRAMS and SUBCOMMANDS of launches.py, or python
    line: int
    options: Mapping[str, LocatedText]  # the launcher's own
    arguments: Mapping[str, LocatedText]  # of the script that it starts: options, and Hydra's key=value
    is_certain: bool  # whether every run executes it
    srun: Mapping[str, LocatedText] | None = None  # the options of the srun that starts it; None for none
    on_nodes: bool = False  # whether each node's own shell puts its variables in place
    forwarder: str = ""  # what starts it elsewhere and forwards only some variables: mpirun, docker, ssh
    forwarded_variables: frozenset[str] | None = None  # which those are; None for all
    may_have_more_options: bool = False  # whether a variable may hold more of its options
    exported: Mapping[str, LocatedText] = field(default_factory=dict)  # variables that are set where it starts
    visible_devices: LocatedText | None = None  # CUDA_VISIBLE_DEVICES
    script: str = ""  # the program that it starts, by its path
    has_variables: bool = False  # whether its words have variables whose values the text does not set


@dataclass(frozen=True, kw_only=True)
class RankStart:
    """The start of a command's ranks. What it does not say, or says in several ways, is None."""

    ranks: LocatedText | None = None  # that torchrun starts on each node
    nodes: LocatedText | None = None  # that torchrun waits for
    restarts: LocatedText | None = None  # that torchrun makes of failed ranks
    first_node: LocatedText | None = None  # where torchrun's ranks meet
    lone_launcher: LocatedText | None = None  # a launcher, or python, that knows no other node
    mpi_ranks: LocatedText | None = None  # that mpirun starts on all nodes
    launches: tuple[Launch, ...] = ()
    faults: tuple[ShellFault, ...] = ()
    unexpanded: tuple[ShellFault, ...] = ()  # variables that whoever reads them has no value for
    assigned: frozenset[str] = frozenset()  # variables that the text sets anywhere


@dataclass(frozen=True)
class JobPart:
    """What a job is on each node, or in each pod of one kind; None where it does not say."""

    file: str
    line: int
    kind: Kind
    title: str  # "MPIJob Worker", "sbatch script"
    instance: LocatedText | None = None
    nodes: LocatedText | None = None
    gpus: LocatedText | None = None  # on each node
    image: LocatedText | None = None
    requests: Mapping[str, LocatedText] = field(default_factory=dict)  # of Kubernetes, by resource
    limits: Mapping[str, LocatedText] = field(default_factory=dict)
    environment: Mapping[str, LocatedText] = field(default_factory=dict)
    options: Mapping[str, LocatedText] = field(default_factory=dict)  # of sbatch or arena, with _ for -
    traits: Mapping[Trait, LocatedText] = field(default_factory=dict)
    network: Network | None = None  # whose interfaces the ranks see
    start: RankStart = RankStart()
    more_images: tuple[LocatedText, ...] = ()

    def __str__(self) -> str:
        nodes = f"{self.nodes.text} node{'s' if self.nodes.number != 1 else ''}" if self.nodes else ""
        words = [nodes, self.instance.text if self.instance else ""]
        return f"{self.file}:{self.line}: {self.title}{''.join(f', {word}' for word in words if word)}"

    @property
    def job_nodes(self) -> int | None:
        """Return the number of nodes of the whole job; None where that is not written."""
        word = self.traits.get("job-nodes") or self.nodes
        return word.number if word else None

    def amount(self, resource: str) -> LocatedText | None:
        """Return how much of a resource a pod gets: its request, or else its limit."""
        return self.requests.get(resource) or self.limits.get(resource)


@dataclass(frozen=True)
class JobFinding:
    """A problem of jobs, and every place that has it."""

    rule: str
    severity: Severity
    where: tuple[str, ...]  # "file:line"
    message: str
    fix: str
    source: str


@dataclass(frozen=True)
class UncheckedFile:
    """A file whose jobs were not checked, and why."""

    file: str
    why: str


@dataclass(frozen=True)
class CheckedJobs:
    """The result of a check: what was read, what was not, and the findings."""

    files: int  # that were opened
    parts: tuple[JobPart, ...]
    findings: tuple[JobFinding, ...]
    templates: tuple[UncheckedFile, ...] = ()  # what makes manifests, and is none: passed over
    unreadable: tuple[UncheckedFile, ...] = ()
