"""What is known about GPUs."""

from rdma_images.core.errors import RefusedError, near
from rdma_images.facts.origin import FactsFile, Row, Version


class Gpu(Row):
    """One model of GPU."""

    capability: Version  # NVIDIA's compute capability, "8.6"


class Gpus(FactsFile):
    """facts/gpus.yaml; GPUs by the name that facts/instances.yaml gives them."""

    FILE = "gpus.yaml"

    gpus: dict[str, Gpu]

    def capability(self, name: str) -> str:
        """Return the compute capability of a GPU that facts/instances.yaml names. Raises RefusedError for another."""
        if name not in self.gpus:
            raise RefusedError(
                f"{self.where('gpus')}: no GPU {name!r}, which facts/instances.yaml names\n"
                f"add its row, or correct the name there: {near(name, self.gpus)}"
            )
        return self.gpus[name].capability
