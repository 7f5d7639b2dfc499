"""The variables that an image sets, wherever it sets them, and what facts/environment.yaml says of each."""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rdma_images.chain.nccl_environment import started_environment
from rdma_images.chain.verbs_links import IB_DISABLE, sharp_plugin
from rdma_images.facts import facts_file
from rdma_images.facts.environment import DiscouragedVariable, Effect, Environment, KnownVariables
from rdma_images.facts.fabric_software import AWS_OFI_NCCL as PLUGIN
from rdma_images.facts.fabric_software import Plugin
from rdma_images.facts.faults import Faults as Table
from rdma_images.facts.faults import join_fixes
from rdma_images.facts.running import RunRequirements
from rdma_images.inspection.inspection import Inspection, nccl_in_use
from rdma_images.inspection.measurements import Libraries
from rdma_images.plan.image_settings import NETWORK, PROVIDER
from rdma_images.validate.validator import Requirement

FAULT_SOURCE = "facts/faults.yaml, each with its source"
ENTRY_POINT_ORIGIN = "set by the entry point"
SEALED_VALUES = ("", "lo")  # what an entry point that looks for interfaces and GPUs finds where it was started
RDMA_CORE_RELEASE = re.compile(
    r"\.so\.\d+\.\d+\.(\d+(?:\.\d+)?)$"
)  # rdma-core CMakeLists.txt: PACKAGE_VERSION comes last
GDRCOPY_RELEASE = re.compile(r"libgdrapi\.so\.(\d+\.\d+)")  # NVIDIA/gdrcopy src/Makefile: LIB_DYNAMIC
UNMEASURED_MARK = "not asked"  # what the probe says of a library for which its time was over
OVERRIDDEN_READERS = ("nccl", "libfabric")  # whose files set only what the environment does not


@functools.cache
def environment_facts() -> Environment:
    """Return facts/environment.yaml."""
    return facts_file.read(Environment)


@functools.cache
def variable_facts() -> KnownVariables:
    """Return facts/known-variables.yaml."""
    return facts_file.read(KnownVariables)


class VariableFinding(NamedTuple):
    """A variable that should not be set, where, and why not.

    `where` is a place of `environments`, or file and line.
    """

    where: str
    name: str
    value: str
    why: str
    newer: str = ""  # what may be installed in place of leaving it out

    def __str__(self) -> str:
        """Return the variable as a finding words it."""
        why = self.why.replace("; ", ", ")  # a semicolon ends a finding
        return f"{self.where}{': ' if self.where else ''}{self.name}={self.value}: {why}"


def concerns_nccl(inspection: Inspection) -> bool:
    """Return whether the image is for a fabric, or has an NCCL, for which variables matter."""
    tree = inspection.measured.tree
    return inspection.expected.fabric is not None or bool(tree and tree.libraries.nccl)


def find_variables(
    inspection: Inspection, effect: Effect, where: Mapping[str, Mapping[str, str]]
) -> list[VariableFinding]:
    """Return the variables in `where` that the table knows with this effect.

    An effect that only some nodes have counts as slow: both are warnings.
    """
    environment, versions = environment_facts(), component_versions(inspection)
    rows = [row for row in environment.variables.values() if row.effect_in_images == effect]
    rows = [row for row in rows if row.name != IB_DISABLE or not sharp_plugin(inspection)]  # see environment.misspelt
    ending: list[VariableFinding] = []  # of warnings, first what can end a job
    costing: list[VariableFinding] = []
    for origin, values in where.items():
        # settings.readable tells of the others.
        readable_values = {name: value for name, value in values.items() if not value.endswith("\r")}
        applying = [row for row in rows if row.applies_to(readable_values, inspection.expected.fabric, versions)]
        of_fabric = {row.name for row in applying if row.fabric}
        for row in (row for row in applying if row.fabric or row.name not in of_fabric):  # one cause is one line
            why = f"{_because(row, versions)} [{environment.cite(row)}]"
            ranked = ending if row.effect == "harmful" else costing
            ranked.append(VariableFinding(origin, row.name, values[row.name], why, _newer(row, versions)))
    return ending + costing


def harmful_variables(inspection: Inspection) -> dict[str, str]:
    """Return the checks that report harmful variables, by NAME=value."""
    if not concerns_nccl(inspection):
        return {}
    by_check = {"settings.harmful": file_variables(inspection), "environment.harmful": environments(inspection)}
    return {
        f"{finding.name}={finding.value}": check
        for check, values in by_check.items()
        for finding in find_variables(inspection, "harmful", values)
    }


def _newer(row: DiscouragedVariable, versions: Mapping[str, str]) -> str:
    """Return the component, and the first version to which the row does not apply; "" for none."""
    return f"{row.component} {row.before} or later" if row.before and row.component in versions else ""


def _because(row: DiscouragedVariable, versions: Mapping[str, str]) -> str:
    """Return the row's reason, with the installed version where a newer one would help."""
    return f"{row.why} ({row.component} {versions[str(row.component)]})" if _newer(row, versions) else row.why


class KnownFaults(NamedTuple):
    """The known faults of versions, as a finding words them, and what to do."""

    actual: str
    fix: str
    everywhere: bool = False  # whether one of them is so on every machine

    def require_none(self, require: Requirement, component: str, version: str) -> None:
        """Report the faults; as advice if none is so on every machine.

        `component` is as in "an NCCL".
        """
        require(
            not self.actual,
            severity="note" if self.actual and not self.everywhere else None,
            expected=f"{component} of which no such fault is known",
            actual=self.actual or f"none is known of {version}",
            fix=self.fix,
        )


def known_faults(inspection: Inspection, versions: Mapping[str, str], *components: str) -> KnownFaults:
    """Return the known faults of these components' versions.

    Those for which a plan is refused are first.
    """
    table, environment = facts_file.read(Table), started_environment(inspection)
    conditions = (versions, inspection.subject.machine, environment, inspection.expected.fabric)
    rows = [
        row for row in table.faults if row.component in components and not row.compiling and row.holds_for(*conditions)
    ]
    rows = [row for row in rows if not row.missing_library or _lacks(inspection, row.missing_library)]
    rows.sort(key=lambda row: not row.refuses)
    fix = join_fixes(row.fix for row in rows)
    return KnownFaults("; ".join(table.sentences(rows, versions)), fix, any(row.refuses for row in rows))


def _lacks(inspection: Inspection, library: str) -> bool:
    """Return whether the loader was asked for this library, and found none."""
    answer = inspection.measured.tree.libraries.resolved.get(library) if inspection.measured.tree else None
    return answer is not None and not answer.file and not answer.error.startswith(UNMEASURED_MARK)


def environments(inspection: Inspection) -> dict[str, dict[str, str]]:
    """Return the variables of the image, at the place "", and of its entry point.

    Variables that the entry point's own script shows are left out.
    """
    entry, settings = inspection.measured.entry, inspection.measured.settings
    shown = {
        (setting.name, setting.value)
        for setting in (settings.assigned if settings else [])
        if setting.reader == "shell"
    }
    entry_environment = {
        name: value for name, value in (entry.given.items() if entry else ()) if value not in SEALED_VALUES
    }
    image_environment = {name: value for name, value in entry_environment.items() if (name, value) not in shown}
    return {"": inspection.subject.environment, ENTRY_POINT_ORIGIN: image_environment}


def file_variables(inspection: Inspection) -> dict[str, dict[str, str]]:
    """Return the variables that files of the image set, by file and line.

    Left out are those that the environment sets first, and what NVIDIA's start scripts may set on some nodes.
    """
    assignments = inspection.measured.settings.assigned if inspection.measured.settings else []
    environment = inspection.subject.environment
    by_line: dict[str, dict[str, str]] = {}
    for setting in assignments:
        is_overridden = setting.reader in OVERRIDDEN_READERS and setting.name in environment
        if setting.reader != "start script" and not is_overridden:
            by_line.setdefault(f"{setting.file}:{setting.line}", {})[setting.name] = setting.value
    return by_line


def component_versions(inspection: Inspection) -> dict[str, str]:
    """Return the components' versions as planned, measured, or labelled, in this order."""
    versions = {name: value for name, value in _versions(inspection) if value[:1].isdigit()}
    return {**versions, **{n: v for n, v in inspection.expected.components.items() if v[:1].isdigit()}}


def _versions(inspection: Inspection) -> Iterator[tuple[str, str]]:
    for name, value in inspection.subject.labels.items():
        if ".component." in name:
            yield name.rpartition("component.")[2], value
    tree, nccl, packages = inspection.measured.tree, nccl_in_use(inspection), inspection.measured.packages
    yield from packages.installed if packages else ()
    yield from (("aws-ofi-nccl", plugin.version) for plugin in (tree.libraries.plugins.values() if tree else ()))
    yield "nccl", nccl.version if nccl else ""
    libfabric = tree.libraries.resolved.get("libfabric.so.1") if tree else None
    yield "libfabric", tree.libraries.libfabric.get(libfabric.file, "") if tree and libfabric else ""
    yield "rdma-core", next(iter(rdma_core(tree.libraries).values()), "") if tree else ""
    copies = tree.libraries.resolved.get("libgdrapi.so") if tree else None
    gdrcopy = GDRCOPY_RELEASE.search(copies.file) if copies else None
    yield "gdrcopy", gdrcopy.group(1) if gdrcopy else ""
    yield "efa-installer", packages.efa_installer if packages else ""


def rdma_core(libraries: Libraries) -> dict[str, str]:
    """Return the rdma-core of libefa and libibverbs, by path, from their file names."""
    files = [libraries.resolved[name].file for name in ("libefa.so.1", "libibverbs.so.1")]
    return {file: match.group(1) for file in files if (match := RDMA_CORE_RELEASE.search(file))}


def refusing_settings(fabric: str, plugin: str | None) -> tuple[list[str], str | None]:
    """Return the settings with which NCCL refuses every network but the fabric's.

    Args:
        fabric: the image's.
        plugin: the version of its aws-ofi-nccl; None where that is not known.

    Returns:
        The values that NCCL_NET may have, and the one that FI_PROVIDER must have, or None.
    """
    row = facts_file.read(RunRequirements).required_networks[fabric]
    network_names = facts_file.read(Plugin).network_names(plugin)
    return [row.network] if row.network else network_names, row.provider


def refusing_variables(inspection: Inspection, fabric: str) -> list[str]:
    """Return the variables with which NCCL refuses every network but the image's fabric, as NAME=value."""
    networks, provider = refusing_settings(fabric, component_versions(inspection).get(PLUGIN))
    return [f"{NETWORK}={' or '.join(networks)}", *([f"{PROVIDER}={provider}"] if provider else [])]
