"""What is known about Python packages that do not use a fabric as they should."""

from rdma_images.core.model import Fabric
from rdma_images.facts.origin import FactsFile, Span


class PackageFault(Span):
    """What some versions of a package do on a fabric; `of` are the names under which it is installed.

    A build whose `modules`, a folder of site-packages, need the library `unless_needs` does not have the fault.
    """

    of: tuple[str, ...]
    fabric: Fabric
    modules: str = ""
    unless_needs: str = ""
    why: str
    fix: str


class Packages(FactsFile):
    """facts/packages.yaml."""

    faults: tuple[PackageFault, ...]
