"""A known fault of some versions of a component."""

import re
from collections.abc import Iterable, Mapping

from pydantic import Field

from rdma_images.core.image import Fabric
from rdma_images.core.versions import sort_key
from rdma_images.facts.facts_file import FactsFile, VersionedFact, VersionRange

INSTALL = re.compile(r"install (?P<part>.+) (?P<version>\d[\d.]*) or later")  # a fix by a newer version


class Fault(VersionedFact):
    """A fault of some versions, and the variables that avoid it or bring it about."""

    unless: str | None = None  # "NAME=value", or "NAME" for any value: a variable that avoids it
    only_with: str | None = None  # "NAME=value", or "NAME" for any value: a variable without which it does not occur
    why: str
    fix: str

    def is_avoided(self, environment: Mapping[str, str] | None) -> bool:
        """Return whether these variables avoid the fault."""
        return is_set(self.unless, environment) or bool(self.only_with and not is_set(self.only_with, environment))


class KnownFault(Fault):
    """A fault of some versions of `component`, where other conditions hold, too."""

    component: str
    fabric: Fabric | None = None
    # The versions of other components beside which it occurs.
    with_versions: dict[str, VersionRange] = Field(default_factory=dict)
    machine: str | None = None  # as ELF files call it
    missing_library: str | None = None  # a library, by its name: it occurs where the loader finds none
    refuses: bool = False  # whether a plan is refused for it
    compiling: bool = False  # whether it fails as it is compiled: an image that has it is past that

    def holds_for(
        self,
        versions: Mapping[str, str],
        machine: str = "",
        environment: Mapping[str, str] | None = None,
        fabric: str | None = None,
    ) -> bool:
        """Return whether it occurs with these versions by component, on this machine and fabric."""
        if self.is_avoided(environment) or self.fabric not in (None, fabric) or self.machine not in (None, machine):
            return False
        spans = {self.component: self, **self.with_versions}
        return all(versions.get(name) and span.holds(versions[name]) for name, span in spans.items())

    def subject(self, versions: Mapping[str, str]) -> str:
        """Return the versions that it is about: "aws-ofi-nccl 1.16.0 with NCCL 2.20.5"."""
        title = {"nccl": "NCCL"}
        first, *others = (f"{title.get(name, name)} {versions[name]}" for name in (self.component, *self.with_versions))
        return f"{first} with {' and '.join(others)}" if others else first


def is_set(variable: str | None, environment: Mapping[str, str] | None) -> bool:
    """Return whether `variable` ("NAME=value", or "NAME" for any) is set.

    The value may be one of a list.
    """
    name, _, value = (variable or "").partition("=")
    current = (environment or {}).get(name, "")
    return value in "".join(current.split()).split(",") if value else bool(current)


class Faults(FactsFile):
    """facts/faults.yaml."""

    FILE = "faults.yaml"

    faults: tuple[KnownFault, ...]

    def sentences(self, rows: Iterable[KnownFault], versions: Mapping[str, str]) -> list[str]:
        """Return what `rows` say of these versions; rows of one component and source are joined."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            reasons.setdefault((row.subject(versions), self.cite(row)), []).append(row.why)
        return [f"{subject}: {'; '.join(why)} [{source}]" for (subject, source), why in reasons.items()]


class PackageFault(Fault):
    """A fault of a package on a fabric; every field that is set narrows it."""

    packages: tuple[str, ...]  # its names
    fabric: Fabric
    modules: str = ""  # the folder of site-packages to which `needs` and `unless_needs` refer
    needs: str = ""  # only builds whose modules need this library have the fault
    unless_needs: str = ""  # builds whose modules need this library do not have it
    unless_package: str = ""  # nor have those in an image with this package
    cuda: str = ""  # only images with this major version of CUDA have it


class PackageFaults(FactsFile):
    """facts/package-faults.yaml."""

    FILE = "package-faults.yaml"

    faults: tuple[PackageFault, ...]


def join_fixes(fixes: Iterable[str]) -> str:
    """Return all fixes; of those that ask for a version of one component, the newest."""
    all_fixes = list(dict.fromkeys(fixes))
    installs = {fix: match for fix in all_fixes if (match := INSTALL.fullmatch(fix))}
    latest = {
        match["part"]: fix for fix, match in sorted(installs.items(), key=lambda item: sort_key(item[1]["version"]))
    }
    return "; ".join(fix for fix in all_fixes if fix not in installs or fix in latest.values())
