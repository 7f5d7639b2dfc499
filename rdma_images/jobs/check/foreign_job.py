"""A piece of a job as somebody wrote it, and what is wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["kubernetes", "eksctl", "skypilot", "slurm", "arena", "sagemaker", "docker"]
Network = Literal["pod", "host"]
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Word:
    """A value as it is written, and the line of it, from 1."""

    text: str
    line: int

    @property
    def number(self) -> int | None:
        """The value as a whole number, of the first ten digits; None for what is none, a template's ${VARIABLE}."""
        return int(self.text[:10]) if self.text.isdecimal() else None


@dataclass(frozen=True)
class Piece:
    """What a job asks for on one node, or in one kind of its pods. What is not written is None or not there."""

    file: str
    line: int
    kind: Kind
    what: str  # "MPIJob Worker", "sbatch script"
    instance: Word | None = None
    nodes: Word | None = None
    gpus: Word | None = None  # on each node
    image: Word | None = None
    requests: Mapping[str, Word] = field(default_factory=dict)  # of Kubernetes, by resource
    limits: Mapping[str, Word] = field(default_factory=dict)
    environment: Mapping[str, Word] = field(default_factory=dict)
    settings: Mapping[str, Word] = field(default_factory=dict)  # what a kind alone has, by a name of ours
    network: Network | None = None  # whose interfaces the ranks see
    ranks: Word | None = None  # that torchrun starts on each node
    rank_nodes: Word | None = None  # that torchrun waits for
    restarts: Word | None = None  # that torchrun makes of failed ranks
    more_images: tuple[Word, ...] = ()

    def __str__(self) -> str:
        nodes = f"{self.nodes.text} node{'s' if self.nodes.number != 1 else ''}" if self.nodes else ""
        parts = [nodes, self.instance.text if self.instance else ""]
        return f"{self.file}:{self.line}: {self.what}{''.join(f', {part}' for part in parts if part)}"

    @property
    def job_nodes(self) -> int | None:
        """The nodes of the whole job, of which this piece may have a part; None where that is not written."""
        word = self.settings.get("job-nodes") or self.nodes
        return word.number if word else None

    def amount(self, resource: str) -> Word | None:
        """Return how much of a resource a pod gets: Kubernetes takes the limit where there is no request."""
        return self.requests.get(resource) or self.limits.get(resource)


@dataclass(frozen=True)
class JobFinding:
    """Something that is wrong with jobs, and all places where it is."""

    rule: str
    severity: Severity
    where: tuple[str, ...]  # "file:line"
    what: str
    fix: str
    source: str


@dataclass(frozen=True)
class UncheckedFile:
    """A file whose jobs were not checked, and why."""

    file: str
    why: str


@dataclass(frozen=True)
class Checked:
    """The result of a check: what was looked at, what was not, and what is wrong."""

    files: int  # that were opened
    pieces: tuple[Piece, ...]
    findings: tuple[JobFinding, ...]
    templates: tuple[UncheckedFile, ...] = ()  # what makes manifests, and is none: passed over
    unreadable: tuple[UncheckedFile, ...] = ()
