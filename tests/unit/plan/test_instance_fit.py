"""An image runs on an instance type, or the reason says what to change."""

import re

import pytest

from rdma_images import facts
from rdma_images.plan import instance_fit, matrix, planner

FACTS = facts.load()
ARM64 = {"platform": "linux/arm64", "aws-ofi-nccl": "1.21.1"}


@pytest.mark.parametrize(
    ("target", "changes", "instance", "problem"),
    [
        ("efa-pytorch", {}, "p5.48xlarge", ""),
        ("erdma-pytorch", {}, "ebmgn8v.48xlarge", ""),
        ("efa-nccl-tests", {"gpu": "sm_90"}, "p5en.48xlarge", ""),
        ("efa-pytorch", {}, "ebmgn8v.48xlarge", "has eRDMA, and efa-pytorch is for EFA"),
        ("efa-pytorch", ARM64, "p5.48xlarge", "is amd64, and efa-pytorch is for linux/arm64"),
        ("efa-pytorch", {}, "p3dn.24xlarge", r"has V100 \(sm_70\), which CUDA 13\.\d of efa-pytorch does not run on"),
        ("efa-nccl-tests", {"gpu": "sm_100"}, "p5.48xlarge", r"has H100 \(sm_90\), and efa-nccl-tests is compiled for"),
    ],
)
def test_what_runs_on_an_instance_type(target: str, changes: dict[str, str], instance: str, problem: str) -> None:
    (image,) = planner.plan(matrix.load(), FACTS, [target], changes=changes).images
    problems = list(instance_fit.problems(image, instance, FACTS))
    if problem:
        (found,) = problems
        assert re.search(problem, found)
        assert "\n" in found  # what to do
    else:
        assert problems == []


def test_the_type_is_described() -> None:
    description = instance_fit.description("p5.48xlarge", FACTS)
    assert description == "on p5.48xlarge: 8 H100 of 80 GiB, 32 EFA interfaces, amd64"
