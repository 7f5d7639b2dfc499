"""Rules, what they find, and the facts that they get with a group of a job."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rdma_images.core.image import Fabric
from rdma_images.facts.environment import Environment, KnownVariables
from rdma_images.facts.instances import INTERFACE_RESOURCES, Instances, InstanceType
from rdma_images.jobs.check.node_group import LocatedText, NodeGroup, Severity

EFA, ERDMA, HUGEPAGES = INTERFACE_RESOURCES["efa"], INTERFACE_RESOURCES["erdma"], "hugepages-2Mi"

# What is filled in later: ${NAME}, $(NAME), {{name}}, <name>, and YOUR_NAME where names are in lower case.
PLACEHOLDER = re.compile(r"[$<{]|\b[A-Z]+_[A-Z_]+\b")


@dataclass(frozen=True)
class FileProblem:
    """A finding of a rule at a word of a file, and its fix."""

    word: LocatedText
    message: str
    fix: str
    severity: Severity | None = None  # None for the rule's


RuleCheck = Callable[[NodeGroup, "CheckContext"], Iterator[FileProblem]]


@dataclass(frozen=True)
class CheckContext:
    """The facts about a group: its instance type, where that is known, and its fabric."""

    instances: Instances
    environment: Environment
    variables: KnownVariables
    node: InstanceType | None
    fabric: Fabric | None
    versions: Mapping[str, str]  # of the image's components, where a report has them
    uses_fabric: bool  # whether any group of the file asks for adapters, or sets variables of a fabric
    requests_gpus: bool  # whether any group of the file asks for GPUs or adapters
    mounts: tuple[str, ...]  # the folders of volumes in any pod of the file: mpirun's variables go to other pods


@dataclass(frozen=True)
class JobRule:
    """A rule with what every finding of it carries."""

    id: str
    severity: Severity
    source: str
    check: RuleCheck


def rule(id: str, severity: Severity, source: str) -> Callable[[RuleCheck], JobRule]:
    """Make a rule of the decorated function."""
    return lambda check: JobRule(id, severity, source, check)


def is_placeholder(text: str) -> bool:
    """Return whether a value is filled in later."""
    return PLACEHOLDER.search(text) is not None
