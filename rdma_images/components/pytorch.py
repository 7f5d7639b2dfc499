"""PyTorch, whose wheels bring CUDA, NCCL and cuDNN."""

import re
from collections.abc import Mapping

from rdma_images.components.definition import Axis, BundledVersion, ComponentDefinition, sorted_versions
from rdma_images.core.image import Fabric
from rdma_images.facts import Facts

NAME = "pytorch"
PYTORCH = ComponentDefinition(
    name=NAME,
    position=30,
    axis=Axis(NAME, lambda facts: sorted_versions(facts.torch.releases)),
    role="subject",
    tag="",
    wheel=re.compile("torch"),
    decides_wheels=True,
    is_measured=True,
)


def _cudnn(versions: Mapping[str, str], _: Fabric, facts: Facts) -> str | None:
    torch = versions.get(NAME)
    return facts.torch.releases[torch].cudnn if torch else None


CUDNN = ComponentDefinition(name="cudnn", position=100, bundled=BundledVersion(NAME, _cudnn), in_tables=False)
