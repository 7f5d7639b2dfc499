"""What is known about CUDA and the driver of the host."""

from rdma_images.facts.origin import FactsFile, Row


class Driver(Row):
    """What a CUDA major asks of the host."""

    driver: str  # oldest NVIDIA driver that runs it


class Cuda(FactsFile):
    """facts/cuda.yaml; majors by number: "13"."""

    majors: dict[str, Driver]
