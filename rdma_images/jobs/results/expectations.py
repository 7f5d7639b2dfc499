"""What the logs of a job are compared with: what the job asked for, what the instance type has, what the image has."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rdma_images.core.pipeline import Fabric
from rdma_images.facts import aws_ofi_nccl, table
from rdma_images.facts.instances import Instances, InstanceType
from rdma_images.jobs.check import measured
from rdma_images.jobs.results.job_spec import Asked

# What a line of a log calls a component -> the component.
COMPONENTS = {"nccl": "nccl", "plugin": aws_ofi_nccl.NAME, "libfabric": "libfabric"}


@dataclass(frozen=True)
class Held:
    """Expectations; a field that is None or empty is not known, and is not checked."""

    fabric: Fabric | None = None
    nodes: int | None = None
    ranks: int | None = None
    adapters: int | None = None  # of each node
    instance: str = ""
    about: InstanceType | None = None
    collective: str = ""
    mtu: int | None = None  # bytes, of the network interfaces
    versions: Mapping[str, str] = field(default_factory=dict)  # "plugin" -> "1.21.1", of the image


def held(job: Asked | None, instance: str = "", nodes: int | None = None) -> Held:
    """What is known of the job, or of one without job.json that ran on so many nodes of the instance type.

    Raises RefusedError for an instance type that is not known.
    """
    name = job.instance if job else instance
    about = table.read("instances.yaml", Instances).find(name) if name else None
    known = Held(fabric=about.fabric if about else None, nodes=nodes, instance=name, about=about)
    if about:
        known = replace(known, adapters=about.interfaces)
    if job is None:
        return known
    program = job.command[0].rpartition("/")[2] if job.command else ""
    return replace(
        known,
        fabric=job.fabric,
        nodes=job.nodes,
        ranks=job.ranks,
        # eRDMA's resource is a share of a device, and says nothing of how many a pod is given.
        adapters=job.device_count if job.fabric == "erdma" else job.counts.interfaces,
        collective=program.removesuffix("_perf") if program.endswith("_perf") else "",
        mtu=int(mtu) if (mtu := job.parameters.get("mtu", "")).isdecimal() else None,
        versions=_versions(job.image),
    )


def _versions(image: str) -> dict[str, str]:
    """The versions in the image of this reference, off its report; none where no report of it is here."""
    about = measured.report(image)
    if about is None or about.facts is None:
        return {}
    subject = about.facts.subject
    labels = {name: subject.label(f"component.{part}") for name, part in COMPONENTS.items()}
    return {name: version for name, version in labels.items() if version}
