"""Facts about environment variables: the names that libraries read, and the values that an image should not set."""

import difflib
import re
from collections.abc import Mapping
from typing import Literal

from rdma_images.core.image import Fabric
from rdma_images.facts.facts_file import Fact, FactsFile, Pattern, VersionedFact
from rdma_images.facts.instances import InstanceType

Effect = Literal["harmful", "slow"]  # see facts/environment.yaml


class DiscouragedVariable(VersionedFact):
    """A variable that should not be set, and why.

    The version of `component` decides whether the row holds.
    """

    name: str
    value: Pattern | None = None  # a regular expression for the whole value
    fabric: Fabric | None = None
    effect: Effect
    why: str
    component: str | None = None
    image_only: bool = False  # a job may have its reason to set it
    needs_known_version: bool = False  # it does not apply where the version of `component` is unknown
    uncertain: bool = False  # it may go wrong, or not: in a job, a warning
    gpus: Pattern | None = None  # a regular expression for the GPUs, as instances.yaml names them; None for all
    in_pods: Pattern | None = None  # for the whole value, where a job's ranks have a pod's own network
    on_hosts: Pattern | None = None  # where they have the host's
    command: Pattern | None = None  # of jobs alone: what is in the commands of those for which it holds

    @property
    def effect_in_images(self) -> Effect:
        """Return the effect in an image, whose GPUs and network are unknown.

        An effect that only some nodes have is "slow".
        """
        in_places = self.uncertain or self.gpus or self.in_pods or self.on_hosts
        return "slow" if self.effect == "harmful" and in_places else self.effect

    def applies_to(
        self, environment: Mapping[str, str], fabric: str | None, versions: Mapping[str, str], command: str = ""
    ) -> bool:
        """Return whether the row holds for an image of `fabric` with this environment, or a job with this command.

        A variable set to "" counts as unset, except for rows whose `value` is "": a Dockerfile can empty what its base
        sets, and not remove it.
        """
        value = environment.get(self.name)
        if value is None or (self.fabric and self.fabric != fabric):
            return False
        if self.command and not re.search(self.command, command):
            return False
        if not value if self.value is None else not re.fullmatch(self.value, value):
            return False
        version = versions.get(self.component or "")
        return self.holds(version) if version else not self.needs_known_version

    def conditions(
        self, value: str, network: str | None, node: InstanceType | None, versions: Mapping[str, str]
    ) -> list[str] | None:
        """Return the conditions on a job's nodes under which the row applies; None where it never does.

        Args:
            value: of the variable in the job.
            network: "host" or "pod": what network the ranks have; None where that is not known.
            node: the instance type; None where that is not known.
            versions: of the image's components, as far as they are known.
        """
        if self.on_hosts and network == "host" and not re.fullmatch(self.on_hosts, value):
            return None
        if self.in_pods and network == "pod" and not re.fullmatch(self.in_pods, value):
            return None
        if self.gpus and node and not re.fullmatch(self.gpus, node.gpu or ""):
            return None
        conditions: list[str] = []
        if (self.on_hosts or self.in_pods) and network is None:
            conditions.append("depending on the nodes' interfaces")
        if self.gpus and node is None:
            conditions.append(f"on {self.gpus.replace('|', ', ')}")
        if self.component and (self.since or self.before) and self.component not in versions:
            since, before = self.since and f"{self.since} or later", self.before and f"older than {self.before}"
            conditions.append(f"if {self.component} is {' and '.join(limit for limit in (since, before) if limit)}")
        return conditions


class NeededVariable(VersionedFact):
    """A variable that some versions of `component` need, with its value."""

    name: str
    value: str
    fabric: Fabric
    component: str
    why: str


class TransferSetting(Fact):
    """A setting that transfers of a KV cache need: without it they leave the fabric, or are slow."""

    command: Pattern  # what is in the command of the jobs that need it
    fabric: Fabric
    name: str  # of a variable, in capitals; else of a key in the command's JSON
    value: str
    effect: Effect  # of a job without it
    why: str


class Environment(FactsFile):
    """facts/environment.yaml."""

    FILE = "environment.yaml"

    variables: dict[str, DiscouragedVariable]
    needed: dict[str, NeededVariable]
    transfers: dict[str, TransferSetting]


PREFIXES = ("NCCL_", "FI_", "OFI_NCCL_", "RDMAV_", "IBV_")
MIN_SIMILARITY = 0.88  # as difflib measures it: one letter of eight


class LibraryVariables(Fact):
    """The variables that a library reads."""

    names: tuple[str, ...]


class KnownVariables(FactsFile):
    """facts/known-variables.yaml."""

    FILE = "known-variables.yaml"

    libraries: dict[str, LibraryVariables]

    @property
    def names(self) -> frozenset[str]:
        """Return the variables of all libraries."""
        return frozenset(name for library in self.libraries.values() for name in library.names)

    def closest_name(self, name: str) -> str | None:
        """Return the variable most similar to `name`; None if it is read itself, or for none.

        The same words in another order are also similar; a word more or less makes another variable.
        """
        if name in self.names or not name.startswith(PREFIXES):
            return None
        words, letters = sorted(name.split("_")), name.replace("_", "")
        swapped = [known for known in sorted(self.names) if sorted(known.split("_")) == words]
        alike = [
            known for known in self.names if known.count("_") == name.count("_") or known.replace("_", "") == letters
        ]
        return next(iter([*swapped, *difflib.get_close_matches(name, alike, n=1, cutoff=MIN_SIMILARITY)]), None)
