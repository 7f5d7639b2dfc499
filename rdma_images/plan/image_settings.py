"""The settings with which an image runs: its variables, and needs of host and job."""

from collections.abc import Iterator, Mapping
from typing import cast, get_args

from rdma_images.core.image import LABEL_PREFIX, Component, Fabric, Image, Limitation, RunSetting
from rdma_images.core.versions import satisfies
from rdma_images.facts import Facts

NETWORK = "NCCL_NET"
PROVIDER = "FI_PROVIDER"


def image_environment(
    axes: Mapping[str, str], fabric: Fabric, components: Mapping[str, Component], facts: Facts
) -> dict[str, str]:
    """Return the variables that are set in an image.

    Unless a fallback is allowed, NCCL_NET names the fabric's network, and on EFA FI_PROVIDER its provider: NCCL would
    fall back to TCP otherwise, at a sixtieth of the speed or less and without an error (see tests/data/nccl-logs).
    """
    if axes["fallback"] == "allow":
        return {}
    required = facts.running.required_networks[fabric]
    network = next((name for component in components.values() for name in component.details.networks), required.network)
    return {name: value for name, value in ((NETWORK, network), (PROVIDER, required.provider)) if value}


def run_settings(fabric: Fabric, facts: Facts) -> Iterator[RunSetting]:
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


def limitations(image: Image, facts: Facts) -> Iterator[Limitation]:
    """Yield what does not work in an image, by its components, variant, fabric and packages."""
    table, found = facts.running, image.components
    for name, row in table.limitations.items():
        applies = row.component in found and row.fabric in (None, image.fabric)
        applies = applies and row.variant in (None, image.axes["variant"])
        met = [part in found and satisfies(found[part].version, need) for part, need in row.unless_needs.items()]
        ended = set(row.unless_packages) & set(image.debian_packages) or (met and all(met))
        if applies and not ended:
            yield Limitation(name, row.feature, row.why, row.fix, table.cite(row))


def tcp_docker_options(image: Image, facts: Facts) -> str | None:
    """Return docker run's options for a run over TCP; None where none is needed."""
    tcp = facts.running.without_fabric
    instead = {NETWORK: tcp.network, PROVIDER: tcp.provider}
    return " ".join(f"--env={name}={instead[name]}" for name in image.environment if name in instead) or None


def settings_by_label(labels: Mapping[str, str], facts: Facts) -> list[RunSetting]:
    """Return what an image asks for by its label of the fabric.

    Without one, what images of every fabric ask for.
    """
    if label := labels.get(f"{LABEL_PREFIX}.fabric"):
        return list(run_settings(cast(Fabric, label), facts))
    first, *others = (list(run_settings(fabric, facts)) for fabric in get_args(Fabric))
    options = [{setting.docker for setting in option} for option in others]
    return [setting for setting in first if all(setting.docker in option for option in options)]
