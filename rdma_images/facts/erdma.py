"""Facts about Alibaba's eRDMA: its apt repository, and the NCCL releases that fail on it."""

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


class BrokenNccl(Row):
    """An NCCL release that fails on eRDMA."""

    why: str
    fixed: str  # in which release, with its source


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
    broken_nccl: dict[str, BrokenNccl]
    working: WorkingNccl
    minimum: MinimumNccl
