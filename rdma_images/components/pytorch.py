"""PyTorch, whose wheels bring CUDA, NCCL and cuDNN."""

import re

from rdma_images.components.definition import Axis, BundledVersion, ComponentDefinition, sorted_versions

NAME = "pytorch"
PYTORCH = ComponentDefinition(
    name=NAME,
    position=30,
    axis=Axis(NAME, lambda facts: sorted_versions(facts.torch.releases)),
    role="subject",
    tag="",
    wheel=re.compile("torch"),
    decides_wheels=True,
    must_be_measured=True,
)


CUDNN = ComponentDefinition(
    name="cudnn",
    position=100,
    bundled=BundledVersion(NAME, lambda chosen, _, facts: facts.torch.releases[chosen[NAME]].cudnn),
    in_tables=False,
)
