"""What is known about CUDA and the driver of the host."""

from rdma_images.facts.origin import FactsFile, Row, Version


class Major(Row):
    """What a CUDA major asks of the host, and what compiles for it."""

    driver: Version  # oldest NVIDIA driver that runs it
    runtime: str  # the wheel of CUDA's runtime
    library: str  # the file of it that programs load, below site-packages
    toolkit: tuple[str, ...] = ()  # the wheels that compile for it; empty where there is no complete set
    capabilities: tuple[Version, ...] = ()  # compute capabilities that its compiler has real code for, where known


class Cuda(FactsFile):
    """facts/cuda.yaml; majors by number: "13"."""

    FILE = "cuda.yaml"

    majors: dict[Version, Major]
