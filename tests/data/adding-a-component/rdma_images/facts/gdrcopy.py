"""What is known about GDRCopy."""

from rdma_images.facts.origin import FactsFile, Row, Version


class Gdrcopy(FactsFile):
    """facts/gdrcopy.yaml."""

    releases: dict[Version, Row]
