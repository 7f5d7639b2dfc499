"""Facts about CUDA and the driver of the host."""

from collections.abc import Iterator

from rdma_images.core.yaml_file import YamlPath
from rdma_images.facts.origin import FactsFile, Row, Version


class CudaMajor(Row):
    """The driver that a CUDA major asks of the host, and the compilers for it."""

    driver: Version  # oldest NVIDIA driver that runs it
    runtime: str  # the wheel of CUDA's runtime
    library: str  # the file of it that programs load, below site-packages
    toolkit: tuple[str, ...] = ()  # the wheels that compile for it; empty where there is no complete set
    capabilities: tuple[Version, ...] = ()  # compute capabilities that its compiler has real code for, where known


class Cuda(FactsFile):
    """facts/cuda.yaml; majors by number: "13"."""

    FILE = "cuda.yaml"

    majors: dict[Version, CudaMajor]

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield the problems of every facts file, and each compiler without capabilities."""
        yield from super().problems()
        for name, major in self.majors.items():
            if major.toolkit and not major.capabilities:
                yield (
                    ("majors", name, "toolkit"),
                    "a toolkit without capabilities: add what `nvcc --list-gpu-arch` says",
                )
