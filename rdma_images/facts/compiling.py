"""The Python packages that compile where they run, and what they need for it."""

from collections.abc import Mapping

from pydantic import Field

from rdma_images.facts.faults import is_set
from rdma_images.facts.origin import FactsFile, VersionedRow


class CompilingPackage(VersionedRow):
    """The needs of a package that compiles where it runs; `packages` are the names under which it is installed.

    `when` says what it compiles, and when. It does not compile beside the package `unless_beside`, with the variable
    `unless`, or where it has brought a module below `unless_modules`, a folder of site-packages. `triton` is set for
    what Triton compiles: the row is about every package that requires it.
    """

    packages: tuple[str, ...] = Field(alias="of")
    needs: tuple[str, ...]
    when: str
    triton: bool = False
    unless: str | None = None
    unless_beside: str = ""
    unless_modules: str = ""

    def is_avoided(self, environment: Mapping[str, str] | None) -> bool:
        """Return whether these variables keep it from compiling so."""
        return is_set(self.unless, environment)


class Compiling(FactsFile):
    """facts/compiling.yaml."""

    FILE = "compiling.yaml"

    packages: tuple[CompilingPackage, ...]
