"""What is known about nccl-tests."""

from rdma_images.facts.origin import FactsFile, Row, Version


class NcclTestsRelease(Row):
    """One release."""

    tested_nccl: tuple[str, ...]


class NcclTests(FactsFile):
    """facts/nccl-tests.yaml."""

    releases: dict[Version, NcclTestsRelease]
