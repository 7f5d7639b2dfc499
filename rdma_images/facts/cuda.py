"""What is known about CUDA and the driver of the host."""

from rdma_images.facts.origin import FactsFile, Row


class Major(Row):
    """What a CUDA major asks of the host, and what compiles for it."""

    driver: str  # oldest NVIDIA driver that runs it
    toolkit: tuple[str, ...] = ()  # the wheels that compile for it; empty where there is no complete set


class Cuda(FactsFile):
    """facts/cuda.yaml; majors by number: "13"."""

    majors: dict[str, Major]
