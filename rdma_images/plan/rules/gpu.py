"""GPUs: an image's own CUDA code is compiled for one that its compiler knows and its fabric has."""

from rdma_images.components import gpus
from rdma_images.core import versions
from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.rule import Reason, rule


@rule("gpu-compiler", "gpu", "cuda")
def compiler_knows_gpu(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that the compiler of the image's CUDA has real code for the GPU."""
    able = gpus.compiler_capabilities(candidate["cuda"], facts)
    if candidate["gpu"] == gpus.ALL or not able or gpus.compute_capability(candidate["gpu"]) in able:
        return None
    architectures = ", ".join(map(gpus.architecture_name, able))
    major = versions.major(candidate["cuda"])
    text = f"the compiler of CUDA {major} compiles for {architectures}, not for {candidate['gpu']}"
    return Reason(text, facts.cuda.cite(facts.cuda.majors[str(major)], "capabilities"))


@rule("gpu-of-fabric", "gpu", "fabric")
def fabric_has_gpu(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require an instance type with the fabric and such a GPU."""
    capabilities = gpus.fabric_capabilities(candidate.fabric, facts)
    if candidate["gpu"] == gpus.ALL or gpus.compute_capability(candidate["gpu"]) in capabilities:
        return None
    architectures = ", ".join(map(gpus.architecture_name, capabilities))
    text = f"no instance type with {candidate.fabric} has such a GPU: theirs are {architectures}"
    return Reason(text, "facts/instances.yaml and facts/gpus.yaml")
