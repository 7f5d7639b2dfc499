"""Variables of a user that disable a job's fabric, or replace what its launcher sets."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import FABRIC_TITLES, Fabric
from rdma_images.jobs.write.job import JobValue
from rdma_images.jobs.write.work import Work
from rdma_images.plan import runtime
from rdma_images.validate.probes import leftovers


def check(work: Work, baked: Mapping[str, str], fabric: Fabric) -> tuple[JobValue, ...]:
    """Return the overrides that the user allows, as values of the job.

    Args:
        work: The user's part of the job.
        baked: The variables that the image sets.
        fabric: That of the nodes.

    Raises:
        RefusedError: An override is not allowed, or what is allowed overrides nothing.
    """
    overrides = [
        *_secrets(work),
        *_networks(work, baked, fabric),
    ]
    if refused := [override for override in overrides if override.name not in work.allow]:
        lines = [f"{override.value}: {override.why} [{override.source}]" for override in refused]
        names = " ".join(f"--field allow={override.name}" for override in refused)
        raise RefusedError("\n".join([*lines, f"remove it, or write it all the same with {names}"]))
    all_names = [override.name for override in overrides]
    if unknown := next((name for name in work.allow if name not in all_names), None):
        advice = suggestion(unknown, all_names) if all_names else "leave it out"
        raise RefusedError(f"allow {unknown}: the job has no such variable that is refused\n{advice}")
    return tuple(
        replace(override, name=f"allowed {override.name}", why=f"written all the same: {override.why}")
        for override in overrides
    )


def _secrets(work: Work) -> Iterator[JobValue]:
    """Yield variables whose values are secrets by form or name, without the values."""
    for name, value in work.env.items():
        if leftovers.is_secret(name, value) or leftovers.named_as_secret(name, value):
            later = f"--field secrets.{name}=env:{name} reads it later"
            why = f"the files of the job would show its value, which may be a secret; {later}"
            yield JobValue(name, name, why, "env")


def _networks(work: Work, baked: Mapping[str, str], fabric: Fabric) -> Iterator[JobValue]:
    for name in (runtime.NETWORK, runtime.PROVIDER):
        value = work.env.get(name)
        if value is not None and (value != baked.get(name, value) or value.lower() == "socket"):
            reason = f"NCCL then leaves {FABRIC_TITLES[fabric]}; --field tcp=true writes such a job, to compare with"
            yield JobValue(name, f"{name}={value}", reason, "the image")
