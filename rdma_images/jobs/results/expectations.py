"""What to expect of a job's logs, by its request, its instance type, and the versions in its image."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rdma_images.core.image import Fabric
from rdma_images.facts import fabric_software, facts_file
from rdma_images.facts.instances import Instances, InstanceType
from rdma_images.jobs import image_reports
from rdma_images.jobs.write.job import Job

# What a line of a log calls a component -> the component.
COMPONENTS = {"nccl": "nccl", "plugin": fabric_software.AWS_OFI_NCCL, "libfabric": "libfabric"}


@dataclass(frozen=True)
class Expectations:
    """Expectations; a field that is None or empty is not known, and is not checked."""

    fabric: Fabric | None = None
    nodes: int | None = None
    ranks: int | None = None
    adapters: int | None = None  # of each node
    instance: str = ""
    instance_type: InstanceType | None = None
    collective: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)  # "plugin" -> "1.21.1", of the image


def job_expectations(job: Job | None, instance: str = "", nodes: int | None = None) -> Expectations:
    """Return the expectations of a job, or of one that has no job.json.

    Raises RefusedError for an unknown instance type.
    """
    name = job.instance if job else instance
    instance_type = facts_file.read(Instances).find(name) if name else None
    expectations = Expectations(
        fabric=instance_type.fabric if instance_type else None,
        nodes=nodes,
        adapters=instance_type.interfaces if instance_type else None,
        instance=name,
        instance_type=instance_type,
    )
    if job is None:
        return expectations
    program = job.command[0].rpartition("/")[2] if job.command else ""
    return replace(
        expectations,
        fabric=job.fabric,
        nodes=job.nodes,
        ranks=job.ranks,
        # eRDMA's resource is a share of a device, and says nothing of how many a pod is given.
        adapters=job.device_count if job.fabric == "erdma" else job.per_node.interfaces,
        collective=program.removesuffix("_perf") if program.endswith("_perf") else "",
        versions=_versions(job.image),
    )


def _versions(image: str) -> dict[str, str]:
    """Return the versions in an image by its report; empty without a report here."""
    report = image_reports.find_report(image)
    if report is None or report.inspection is None:
        return {}
    subject = report.inspection.subject
    labels = {name: subject.label(f"component.{part}") for name, part in COMPONENTS.items()}
    return {name: version for name, version in labels.items() if version}
