"""Facts about Alibaba's eRDMA: its apt repository, and the NCCL releases that work on it."""

from rdma_images.core.image import Platform
from rdma_images.facts.origin import FactsFile, Row, Version


class AptRepository(Row):
    """The apt repository."""

    url: str
    key: str
    packages: tuple[str, ...]


class AptSuite(Row):
    """A suite of the repository, for the bases of one codename."""

    platforms: tuple[Platform, ...]


class WorkingNccl(Row):
    """NCCL releases that were seen to work on eRDMA."""

    nccl: tuple[Version, ...]


class MinimumNccl(Row):
    """The oldest NCCL that Alibaba supports."""

    nccl: Version


class Erdma(FactsFile):
    """facts/erdma.yaml."""

    FILE = "erdma.yaml"

    repository: AptRepository
    suites: dict[str, AptSuite]
    working: WorkingNccl
    minimum: MinimumNccl
