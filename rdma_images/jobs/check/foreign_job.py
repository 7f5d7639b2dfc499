"""A piece of a job as somebody wrote it, and what is wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["kubernetes", "eksctl", "skypilot", "slurm", "arena", "sagemaker"]
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Word:
    """A value as it is written, and the line of it, from 1."""

    text: str
    line: int

    @property
    def number(self) -> int | None:
        """The value as a whole number; None for what is none, a template's ${VARIABLE} for example."""
        return int(self.text) if self.text.isdecimal() and len(self.text) < 10 else None


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

    def __str__(self) -> str:
        nodes = f"{self.nodes.text} node{'s' if self.nodes.number != 1 else ''}" if self.nodes else ""
        of = [nodes, self.instance.text if self.instance else ""]
        return f"{self.file}:{self.line}: {self.what}{''.join(f', {one}' for one in of if one)}"

    def asked(self, resource: str) -> Word | None:
        """How much of a resource a pod gets: Kubernetes takes the limit where there is no request."""
        return self.requests.get(resource) or self.limits.get(resource)


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a job."""

    rule: str
    severity: Severity
    where: str  # "file:line"
    what: str
    fix: str
    source: str
