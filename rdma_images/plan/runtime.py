"""The settings with which an image runs: its variables, and needs of host and job."""

from collections.abc import Iterator, Mapping
from typing import cast, get_args

from rdma_images.core.image import LABEL_PREFIX, Component, Fabric, Image, Limit, RunSetting
from rdma_images.core.versions import satisfies
from rdma_images.facts import Facts

NETWORK = "NCCL_NET"
PROVIDER = "FI_PROVIDER"


def environment(
    axes: Mapping[str, str], fabric: Fabric, components: Mapping[str, Component], facts: Facts
) -> dict[str, str]:
    """Return the variables that are set in an image.

    Unless a fallback is allowed, NCCL_NET names the fabric's network, and on EFA FI_PROVIDER its provider: NCCL would
    fall back to TCP otherwise, at a sixtieth of the speed or less and without an error (see tests/data/nccl-logs).
    """
    if axes["fallback"] == "allow":
        return {}
    insisted = facts.running.insist[fabric]
    network = next((name for component in components.values() for name in component.details.networks), insisted.network)
    return {name: value for name, value in ((NETWORK, network), (PROVIDER, insisted.provider)) if value}


def settings(fabric: Fabric, facts: Facts) -> Iterator[RunSetting]:
    """Yield what the fabric needs from the host, and variables that jobs may need."""
    running = facts.running
    for row in running.settings.values():
        if row.fabric in (None, fabric):
            yield RunSetting(row.name, row.value, row.docker, row.why, running.cite(row))
    for job in running.variables.values():
        if job.fabric == fabric:
            yield RunSetting(
                f"variable.{job.name}", job.value, f"--env={job.name}={job.value}", job.why, running.cite(job)
            )


def limits(image: Image, facts: Facts) -> Iterator[Limit]:
    """Yield what does not work in an image, by its components, variant, fabric and packages."""
    table, found = facts.running, image.components
    for name, row in table.limits.items():
        applies = row.component in found and row.fabric in (None, image.fabric)
        applies = applies and row.variant in (None, image.axes["variant"])
        met = [part in found and satisfies(found[part].version, need) for part, need in row.unless_needs.items()]
        ended = set(row.unless_packages) & set(image.debian_packages) or (met and all(met))
        if applies and not ended:
            yield Limit(name, row.feature, row.why, row.fix, table.cite(row))


def run_without_fabric(image: Image, facts: Facts) -> str | None:
    """Return what lets a run start without the fabric; None where nothing is needed."""
    no_insistence = facts.running.insist["nothing"]
    instead = {NETWORK: no_insistence.network, PROVIDER: no_insistence.provider}
    return " ".join(f"--env={name}={instead[name]}" for name in image.environment if name in instead) or None


def settings_by_label(labels: Mapping[str, str], facts: Facts) -> list[RunSetting]:
    """Return what an image asks for by its label of the fabric.

    Without one, what images of every fabric ask for.
    """
    if label := labels.get(f"{LABEL_PREFIX}.fabric"):
        return list(settings(cast(Fabric, label), facts))
    first, *others = (list(settings(fabric, facts)) for fabric in get_args(Fabric))
    options = [{setting.docker for setting in option} for option in others]
    return [setting for setting in first if all(setting.docker in option for option in options)]
