"""What is known about instance types."""

from rdma_images.facts.origin import FactsFile, Row
from rdma_images.model import Fabric


class InstanceType(Row):
    """How many interfaces of a fabric an instance type has at most."""

    fabric: Fabric
    interfaces: int


class Instances(FactsFile):
    """facts/instances.yaml."""

    types: dict[str, InstanceType]
