"""What is known about GPUs."""

from rdma_images.facts.origin import FactsFile, Row, Version


class Gpu(Row):
    """One model of GPU."""

    capability: Version  # NVIDIA's compute capability, "8.6"


class Gpus(FactsFile):
    """facts/gpus.yaml; GPUs by the name that facts/instances.yaml gives them."""

    FILE = "gpus.yaml"

    gpus: dict[str, Gpu]
