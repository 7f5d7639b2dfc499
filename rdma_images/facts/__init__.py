"""What is known about versions, as typed tables; the data is in facts/, a YAML file a component."""

from dataclasses import dataclass
from pathlib import Path

from rdma_images import paths, yamlfile
from rdma_images.facts.base import Bases
from rdma_images.facts.cuda import Cuda
from rdma_images.facts.efa import Efa
from rdma_images.facts.erdma import Erdma
from rdma_images.facts.nccl import Nccl
from rdma_images.facts.nccl_tests import NcclTests
from rdma_images.facts.plugin import Plugin
from rdma_images.facts.running import Running
from rdma_images.facts.torch import Torch


@dataclass(frozen=True, eq=False)  # compared by identity, so that what is looked up once can be remembered
class Facts:
    """Every table."""

    bases: Bases
    torch: Torch
    cuda: Cuda
    nccl: Nccl
    efa: Efa
    plugin: Plugin
    erdma: Erdma
    nccl_tests: NcclTests
    running: Running


def load(folder: Path = paths.FACTS) -> Facts:
    """Read every file of `folder`. Raises RefusedError with file and line for what does not hold together."""
    return Facts(
        bases=yamlfile.load(folder / "bases.yaml", Bases),
        torch=yamlfile.load(folder / "torch.yaml", Torch),
        cuda=yamlfile.load(folder / "cuda.yaml", Cuda),
        nccl=yamlfile.load(folder / "nccl.yaml", Nccl),
        efa=yamlfile.load(folder / "efa-installer.yaml", Efa),
        plugin=yamlfile.load(folder / "aws-ofi-nccl.yaml", Plugin),
        erdma=yamlfile.load(folder / "erdma.yaml", Erdma),
        nccl_tests=yamlfile.load(folder / "nccl-tests.yaml", NcclTests),
        running=yamlfile.load(folder / "running.yaml", Running),
    )
