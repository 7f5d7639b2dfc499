"""How an image wants to be run: what it insists on by itself, and what it asks of whoever runs it."""

from collections.abc import Iterator, Mapping

from rdma_images.facts import Facts
from rdma_images.model import Component, Fabric, Image, Setting

NETWORK = "NCCL_NET"


def environment(
    axes: Mapping[str, str], fabric: Fabric, components: Mapping[str, Component], facts: Facts
) -> dict[str, str]:
    """The variables that are set in an image.

    Unless a fallback is allowed, NCCL_NET names the fabric's network: without it NCCL would go on over TCP, at a
    sixtieth of the speed and without an error (tests/data/nccl-logs has both).
    """
    if axes["fallback"] == "allow":
        return {}
    plugin = components.get("aws-ofi-nccl")
    return {NETWORK: plugin.details["net-name"] if plugin else facts.running.insist[fabric].network}


def settings(fabric: Fabric, facts: Facts) -> Iterator[Setting]:
    """What an image of a fabric asks of its host, and the variables that its jobs may need."""
    known = facts.running
    for row in known.settings.values():
        if row.fabric in (None, fabric):
            yield Setting(row.what, row.value, row.docker, row.why, known.cite(row))
    for job in known.variables.values():
        if job.fabric == fabric:
            yield Setting(f"variable.{job.name}", job.value, f"--env={job.name}={job.value}", job.why, known.cite(job))


def lift(image: Image, facts: Facts) -> str | None:
    """What makes a run start without the fabric; None for an image that does anyway."""
    if NETWORK not in image.environment:
        return None
    return f"--env={NETWORK}={facts.running.insist['nothing'].network}"
