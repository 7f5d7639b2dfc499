"""What a rule is, and what it may know of a piece."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rdma_images.core.pipeline import Fabric
from rdma_images.facts.environment import Environment
from rdma_images.facts.instances import Instances, InstanceType
from rdma_images.facts.variables import Variables
from rdma_images.jobs.check.foreign_job import Piece, Severity, Word

EFA, ERDMA, GPU, HUGEPAGES = "vpc.amazonaws.com/efa", "aliyun/erdma", "nvidia.com/gpu", "hugepages-2Mi"

Answer = tuple[Word, str, str]  # where, what is wrong, what to do
Check = Callable[[Piece, "Known"], Iterator[Answer]]


@dataclass(frozen=True)
class Tables:
    """The facts that rules read."""

    instances: Instances
    environment: Environment
    variables: Variables


@dataclass(frozen=True)
class Known:
    """What the facts say of a piece: its instance type, where that is known, and its fabric."""

    tables: Tables
    node: InstanceType | None
    fabric: Fabric | None
    mounts: tuple[str, ...]  # the folders of volumes in any pod of the file: mpirun's variables go to other pods


@dataclass(frozen=True)
class Rule:
    """A rule with what every finding of it carries."""

    id: str
    severity: Severity
    source: str
    check: Check


def rule(id: str, severity: Severity, source: str) -> Callable[[Check], Rule]:
    """Make a rule of the decorated function."""
    return lambda check: Rule(id, severity, source, check)


def node_name(piece: Piece) -> str:
    return piece.instance.text if piece.instance else "the node"


def is_service(piece: Piece) -> bool:
    return "service" in piece.settings
