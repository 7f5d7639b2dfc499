"""The node groups of a job as the rules see them, and the findings about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["kubernetes", "skypilot", "slurm"]
Network = Literal["pod", "host"]
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class LocatedText:
    """A value as text, and its line, from 1."""

    text: str
    line: int

    @property
    def number(self) -> int | None:
        """Return the value as a whole number of at most ten characters; None for others, as ${VARIABLE}."""
        return int(self.text[:10]) if self.text.removeprefix("-").isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class Pod:
    """The settings of a Kubernetes pod beside its resources and variables."""

    is_service: bool = False  # whether it serves requests, and is no job with an end
    is_privileged: bool = False
    may_lock_memory: bool = False  # by a capability
    has_claims: bool = False  # of DRA, which may give adapters
    has_more_environment: bool = False  # whether variables come from elsewhere, too
    host_devices: LocatedText | None = None  # the node's /dev/infiniband, mounted by its path
    mounts: tuple[str, ...] = ()  # the folders in which volumes are


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """The settings of a job on each node, or in each pod of one kind; None for those that the file does not state."""

    file: str
    line: int
    kind: Kind
    title: str  # "MPIJob Worker", "sbatch script"
    instance: LocatedText | None = None
    nodes: LocatedText | None = None
    gpus: LocatedText | None = None  # on each node
    images: tuple[LocatedText, ...] = ()
    requests: Mapping[str, LocatedText] = field(default_factory=dict)  # of Kubernetes, by resource
    limits: Mapping[str, LocatedText] = field(default_factory=dict)
    environment: Mapping[str, LocatedText] = field(default_factory=dict)
    command: tuple[LocatedText, ...] = ()  # words, or lines of a shell
    network: Network | None = None  # whose interfaces the ranks see
    pod: Pod = Pod()
    container_env: frozenset[str] = frozenset()  # of Slurm: variables that win over the image's own
    cloud: LocatedText | None = None  # of SkyPilot, and the two below
    network_tier: LocatedText | None = None
    gpu: str = ""  # as in "H100"
    fabric_is_unknown: bool = False  # whether nothing says over which fabric its GPUs speak

    def __str__(self) -> str:
        nodes = f"{self.nodes.text} node{'s' if self.nodes.number != 1 else ''}" if self.nodes else ""
        words = [nodes, self.instance.text if self.instance else ""]
        unknown = "; the fabric is not known: variables were not judged for one" if self.fabric_is_unknown else ""
        return f"{self.file}:{self.line}: {self.title}{''.join(f', {word}' for word in words if word)}{unknown}"

    @property
    def image(self) -> LocatedText | None:
        """Return the first image; None where none is named."""
        return self.images[0] if self.images else None

    @property
    def node_name(self) -> str:
        """Return what a finding calls its node: the instance type, where that is known."""
        return self.instance.text if self.instance else "the node"

    @property
    def node_count(self) -> int:
        """Return the number of nodes; 0 where that is not written, or left open."""
        return (self.nodes and self.nodes.number) or 0

    def amount(self, resource: str) -> LocatedText | None:
        """Return how much of a resource a pod gets: its request, or else its limit."""
        return self.requests.get(resource) or self.limits.get(resource)


@dataclass(frozen=True)
class JobFinding:
    """A problem of jobs, and every place ("file:line") that has it; one that comments allow does not count."""

    rule: str
    severity: Severity
    where: tuple[str, ...]
    message: str
    fix: str
    source: str
    is_allowed: bool = False


@dataclass(frozen=True)
class UncheckedFile:
    """A file whose jobs were not checked, and why."""

    file: str
    why: str


@dataclass(frozen=True)
class CheckedJobs:
    """The result of a check: what was read, what was not, and the findings."""

    files: int  # that were opened
    groups: tuple[NodeGroup, ...]
    findings: tuple[JobFinding, ...]
    templates: tuple[UncheckedFile, ...] = ()  # skipped: only their output can be checked
    unreadable: tuple[UncheckedFile, ...] = ()

    @property
    def has_errors(self) -> bool:
        """Return whether there is an error that no comment allows."""
        return any(finding.severity == "error" and not finding.is_allowed for finding in self.findings)
