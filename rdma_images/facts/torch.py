"""Facts about PyTorch's wheels on the default package index."""

from rdma_images.core.image import Platform
from rdma_images.facts.origin import FactsFile, Row, Version


class TorchRelease(Row):
    """One release. Its wheels bring CUDA and NCCL as wheels of their own, pinned exactly."""

    cuda: Version  # "13.2": what the wheel was built for
    cudnn: Version
    nccl: Version  # the pin on nvidia-nccl-cu12 or -cu13
    python: tuple[Version, ...]  # with a wheel for that CPython, "3.13"; free-threaded builds are not counted
    nccl_on: tuple[Platform, ...]  # whose wheel pins an NCCL; without one the wheel is for the CPU only


class Torch(FactsFile):
    """facts/torch.yaml."""

    FILE = "torch.yaml"

    releases: dict[Version, TorchRelease]
