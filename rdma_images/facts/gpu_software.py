"""Facts about CUDA, NCCL, PyTorch's wheels and nccl-tests."""

import re
from typing import Literal

from pydantic import Field

from rdma_images.core.image import Fabric, Platform
from rdma_images.facts.facts_file import Fact, FactsFile, Version

WHEEL_NAME = re.compile(r"nvidia-nccl-cu\d+")
Backend = Literal["PROXY", "GDAKI", "GPI", "EFA_GDA"]


class CudaMajor(Fact):
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


class NcclRelease(Fact):
    """One release; its libnccl.so.2 asks a plugin for these ABI versions, oldest first."""

    cuda: tuple[int, ...]  # CUDA majors that have a wheel: 12 is nvidia-nccl-cu12
    net: tuple[int, ...]
    tuner: tuple[int, ...] = ()


class Nccl(FactsFile):
    """facts/nccl.yaml."""

    FILE = "nccl.yaml"

    releases: dict[Version, NcclRelease]


class TorchRelease(Fact):
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


class Backends(Fact):
    """The backends of NCCL's GPU-initiated networking that a fabric has."""

    used: tuple[Backend, ...]
    only_on: dict[Backend, tuple[str, ...]] = Field(default_factory=dict)  # instance types, where not on all


class DefaultMeasurement(Fact):
    """The defaults of a measurement with nccl-tests."""

    program: str
    arguments: tuple[str, ...]


class NcclTests(FactsFile):
    """facts/nccl-tests.yaml."""

    FILE = "nccl-tests.yaml"

    measure: DefaultMeasurement
    releases: dict[Version, Fact]
    backends: dict[Fabric, Backends]
