"""Variables and mounts of a user that disable a job's fabric, or replace what its launcher sets."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts import Facts, facts_file
from rdma_images.facts.environment import Environment, Variable
from rdma_images.facts.instances import InstanceType
from rdma_images.jobs.write.job import JobValue
from rdma_images.jobs.write.work import Work
from rdma_images.nccl_logs.verdict import logs_channels
from rdma_images.plan import runtime
from rdma_images.validate.probes import leftovers

# Variables of NCCL's log, each with whether a value leaves one to judge.
LOG_VARIABLES: Mapping[str, Callable[[str], bool]] = {
    "NCCL_DEBUG": lambda value: value.upper() in ("INFO", "TRACE"),
    "NCCL_DEBUG_SUBSYS": logs_channels,
    "NCCL_DEBUG_FILE": lambda _: False,
}
# Variables that replace the image's, each with why that does harm, and its source.
SEARCH_PATHS = {
    "PATH": ("the launcher finds its programs in the image's", "execvp(3)"),
    "LD_LIBRARY_PATH": ("another NCCL, plugin or libfabric than the image's may be loaded", "ld.so(8)"),
}


@dataclass(frozen=True)
class Override:
    """A variable or mount, by its name or path, that a job cannot have without harm."""

    name: str
    value: str  # as the job sets it
    why: str
    source: str


def check(
    work: Work,
    baked: Mapping[str, str],
    node: InstanceType,
    network: str,
    versions: Mapping[str, str],
    facts: Facts,
) -> tuple[JobValue, ...]:
    """Return the overrides that the user allows, as values of the job.

    Args:
        work: The user's part of the job.
        baked: The variables that the image sets.
        node: The instance type.
        network: "host" or "pod": what network the ranks have.
        versions: The versions of the image's components, as far as they are known.
        facts: All facts.

    Raises:
        RefusedError: An override is not allowed, or what is allowed overrides nothing.
    """
    overrides = [
        *_search_paths(work, baked),
        *_secrets(work),
        *_variables(work, baked, node, network, versions),
        *_mounts(work, facts),
    ]
    if refused := [override for override in overrides if override.name not in work.allow]:
        lines = [f"{override.value}: {override.why} [{override.source}]" for override in refused]
        names = " ".join(f"--field allow={override.name}" for override in refused)
        raise RefusedError("\n".join([*lines, f"remove it, or write it all the same with {names}"]))
    for name in work.allow:
        if name not in [override.name for override in overrides]:
            advice = suggestion(name, [override.name for override in overrides]) if overrides else "leave it out"
            raise RefusedError(f"allow {name}: the job has no such variable or mount that is refused\n{advice}")
    return tuple(
        JobValue(f"allowed {override.name}", override.value, f"written all the same: {override.why}", override.source)
        for override in overrides
    )


def _search_paths(work: Work, baked: Mapping[str, str]) -> Iterator[Override]:
    for name, (why, source) in SEARCH_PATHS.items():
        if name in work.secrets or (name in work.env and work.env[name] != baked.get(name)):
            advice = f"for a program alone, begin the command with env {name}=…"
            yield Override(name, _setting(name, work), f"{why}; {advice}", source)


def _secrets(work: Work) -> Iterator[Override]:
    """Yield variables whose values are secrets by form or name, without the values."""
    for name, value in work.env.items():
        if leftovers.is_secret(name, value) or leftovers.named_as_secret(name, value):
            later = f"--field secrets.{name}=env:{name} reads it later"
            why = f"the files of the job would show its value, which may be a secret; {later}"
            yield Override(name, name, why, "env")


def _setting(name: str, work: Work) -> str:
    """Return what the job sets; a secret by its name alone."""
    return f"{name}={work.env[name]}" if name in work.env else name


def _variables(
    work: Work, baked: Mapping[str, str], node: InstanceType, network: str, versions: Mapping[str, str]
) -> Iterator[Override]:
    facts = facts_file.read(Environment)
    for name, value in work.env.items():
        if name in (runtime.NETWORK, runtime.PROVIDER) and value != baked.get(name, value):
            fabric = FABRIC_TITLES[node.fabric]
            reason = f"the image sets {name}={baked[name]}, so that NCCL ends where {fabric} is not there"
            yield Override(name, f"{name}={value}", reason, "the image")
        elif name in LOG_VARIABLES and not LOG_VARIABLES[name](value):
            yield Override(name, f"{name}={value}", "no log would say which network NCCL used", "facts/launchers.yaml")
        elif name == "NCCL_NET" and value.lower() == "socket":
            yield Override(
                name,
                f"{name}={value}",
                "NCCL then uses TCP alone: write such a job with --field tcp=true",
                "NCCL",
            )
        elif row := next(
            (row for row in facts.variables.values() if _surely_applies(row, name, work, node, network, versions)), None
        ):
            yield Override(name, f"{name}={value}", row.why, facts.cite(row))
    for name in work.secrets.keys() & {*baked, *LOG_VARIABLES}:
        yield Override(name, name, "a secret of this name would replace what the job sets", "secrets")


def _surely_applies(
    row: Variable, name: str, work: Work, node: InstanceType, network: str, versions: Mapping[str, str]
) -> bool:
    """Return whether a row of facts/environment.yaml surely applies to a job."""
    return (
        row.name == name
        and row.effect == "harmful"
        and not (row.possible or row.image_only)
        and row.applies_to(work.env, node.fabric, versions)
        and row.conditions(work.env[name], network, node, versions) == []
    )


def _mounts(work: Work, facts: Facts) -> Iterator[Override]:
    folders = facts.launchers.fabric_folders
    for mount in work.mounts:
        if hidden := folders.hidden_by(mount.to):
            reason = f"it hides or changes {hidden}, which the fabric or the driver needs"
            yield Override(mount.to, f"mount {mount.source}:{mount.to}", reason, facts.launchers.cite(folders))
    if work.code and (hidden := folders.hidden_by(work.code.to)):
        yield Override(work.code.to, f"code {work.code.to}", f"it hides {hidden}", facts.launchers.cite(folders))
