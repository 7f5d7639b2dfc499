"""What is known about Python packages that do not use a fabric as they should."""

from pydantic import Field

from rdma_images.core.pipeline import Fabric
from rdma_images.facts.faults import Fault
from rdma_images.facts.origin import FactsFile


class PackageFault(Fault):
    """A fault of some versions of a package on a fabric; `packages` are the names under which it is installed.

    A build whose `modules`, a folder of site-packages, need the library `unless_needs` does not have the fault, nor has
    one whose modules do not need the library `needs`, nor one beside the package `unless_beside`,
    nor one in an image of another `cuda` (its major version).
    """

    packages: tuple[str, ...] = Field(alias="of")
    fabric: Fabric
    modules: str = ""
    needs: str = ""
    unless_needs: str = ""
    unless_beside: str = ""
    cuda: str = ""


class Packages(FactsFile):
    """facts/packages.yaml."""

    FILE = "packages.yaml"

    faults: tuple[PackageFault, ...]
