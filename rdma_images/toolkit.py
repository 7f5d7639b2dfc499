"""What compiles for an image: NVIDIA's compiler and headers as wheels of the image's own CUDA."""

from rdma_images import versions
from rdma_images.candidate import Candidate
from rdma_images.details import plugin_from
from rdma_images.facts import Facts


def needed(candidate: Candidate, facts: Facts) -> bool:
    """Whether anything of `candidate` is compiled against CUDA while it is built."""
    from_source = "aws-ofi-nccl" in candidate and plugin_from(candidate, facts) == "source"
    return from_source or "nccl-tests" in candidate


def requirements(cuda: str, facts: Facts) -> tuple[str, ...]:
    """The wheels of the toolkit for a CUDA version ("13.0"), its newest patch; empty where there are none."""
    return tuple(f"{wheel}=={cuda}.*" for wheel in facts.cuda.majors[str(versions.major(cuda))].toolkit)
