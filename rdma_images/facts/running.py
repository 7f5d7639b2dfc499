"""What is known about how an image wants to be run."""

from rdma_images.facts.origin import FactsFile, Row
from rdma_images.model import Fabric


class AskedFor(Row):
    """What a host or an orchestrator must give. `docker` is docker run's word for it, empty where it has none."""

    what: str  # "devices"
    value: str
    fabric: Fabric | None = None
    docker: str = ""
    why: str


class JobVariable(Row):
    """An environment variable that a job may need."""

    name: str
    value: str
    fabric: Fabric
    why: str


class Network(Row):
    """What NCCL_NET calls one of NCCL's built-in networks."""

    network: str


class Running(FactsFile):
    """facts/running.yaml."""

    settings: dict[str, AskedFor]
    variables: dict[str, JobVariable]
    insist: dict[str, Network]
