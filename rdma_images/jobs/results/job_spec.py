"""Read job.json: what was asked for, with which a job's logs are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rdma_images.core.image import Fabric
from rdma_images.core.step_files import step_file
from rdma_images.jobs.write import folder
from rdma_images.jobs.write.job import Counts


@dataclass(frozen=True)
class JobSpec:
    """The part of job.json that the job's logs can show."""

    name: str
    target: str
    launcher: str
    fabric: Fabric
    image: str
    digest: str
    instance: str
    nodes: int
    ranks: int
    counts: Counts
    device_count: int  # interfaces on the node
    tcp: bool
    command: tuple[str, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)


JOB_SPEC = step_file(folder.JOB_FILE, "job", JobSpec)
