"""Facts about compiling Python packages that have no wheel."""

from pydantic import Field, PositiveInt

from rdma_images.facts.origin import FactsFile, Row


class SourcePackage(Row):
    """The needs of a package's build: variables, "{architectures}" in them being "80;90", and GiB for each compiler."""

    variables: dict[str, str] = Field(default_factory=dict)
    cuda: bool = False  # whether it cannot be built without a compiler of CUDA
    memory: PositiveInt | None = None
    network: bool = False  # whether its build fetches what its source lacks
    why: str


class SourcePackages(FactsFile):
    """facts/source-packages.yaml; packages by their names in the normal form."""

    FILE = "source-packages.yaml"

    packages: dict[str, SourcePackage]
