"""Whether everything was measured that the other validators rest on."""

import pytest

from rdma_images.validate.case import Case
from rdma_images.validate.plugin import Judge


def torch_tells(case: Case) -> bool:
    """Whether torch.imports has something to say of a torch that could not be imported."""
    packages = case.measured.packages
    return packages is not None and any("torch" in folder for folder in packages.wheels.values())


@pytest.mark.validator("measured.complete", source="what was not measured proves nothing", tier="any")
def test_complete(case: Case, judge: Judge) -> None:
    """Every measurement came to its end."""
    measured = case.measured
    lost = [name for name in measured.lost if name != "torch" or not torch_tells(case)]
    judge(
        not lost,
        expected="an answer to every question asked",
        found="; ".join(f"{name}: {measured.missing.get(name, 'no reason is known')}" for name in lost)
        or "all of them",
        mend="look at what the image does to the Python, the files or the layers that were asked; then validate again",
    )
