"""Facts about NCCL's wheels: the plugins that each can load, and where one does not work."""

import re

from rdma_images.facts.origin import FactsFile, Row, Version

WHEEL_NAME = re.compile(r"nvidia-nccl-cu\d+")


class NcclRelease(Row):
    """One release; its libnccl.so.2 asks a plugin for these ABI versions, oldest first."""

    cuda: tuple[int, ...]  # CUDA majors that have a wheel: 12 is nvidia-nccl-cu12
    net: tuple[int, ...]
    tuner: tuple[int, ...] = ()
    profiler: tuple[int, ...] = ()
    gin: tuple[int, ...] = ()
    rma: tuple[int, ...] = ()
    env: tuple[int, ...] = ()


class Nccl(FactsFile):
    """facts/nccl.yaml."""

    FILE = "nccl.yaml"

    releases: dict[Version, NcclRelease]
