"""NCCL and PyTorch: one NCCL, of the right CUDA, not older than what torch was built with."""

from rdma_images.core import versions
from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.plan_rule import Reason, rule


@rule("nccl-pin", "nccl", "pytorch")
def nccl_not_older_than_torch_pin(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require the NCCL that torch pins, or a newer one."""
    release = facts.torch.releases[candidate["pytorch"]]
    if versions.at_least(candidate["nccl"], release.nccl):
        return None
    text = (
        f"torch {candidate['pytorch']} pins NCCL {release.nccl} and calls what that one has: an older one may lack it"
    )
    return Reason(text, facts.torch.cite(release, "nccl"))


@rule("nccl-cuda", "nccl", "cuda")
def nccl_has_wheel_for_cuda(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that NCCL has a wheel for the CUDA major."""
    release, major = facts.nccl.releases[candidate["nccl"]], versions.major(candidate["cuda"])
    if major in release.cuda:
        return None
    majors = " and ".join(map(str, release.cuda))
    text = f"NCCL {candidate['nccl']} has a wheel for CUDA {majors}, none for CUDA {major}"
    return Reason(text, facts.nccl.cite(release, "cuda"))


@rule("nccl-on-arm64", "pytorch", "platform")
def torch_wheel_brings_nccl(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that torch's wheel for the platform is built for CUDA and NCCL."""
    release = facts.torch.releases[candidate["pytorch"]]
    if candidate["platform"] in release.nccl_on:
        return None
    text = f"torch {candidate['pytorch']} for {candidate['platform']} asks for no NCCL: that wheel is for the CPU only"
    return Reason(text, facts.torch.cite(release, "nccl-on"))
