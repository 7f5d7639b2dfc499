"""CUDA: torch's wheels bring it, the base's has the same major, and it knows the GPUs."""

from rdma_images.components import efa_installer, gpus
from rdma_images.core import versions
from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.plan_rule import Reason, rule


@rule("cuda-of-torch", "cuda", "pytorch")
def cuda_matches_torch(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require the CUDA that torch's wheel was built for."""
    release = facts.torch.releases[candidate["pytorch"]]
    if candidate["cuda"] == release.cuda:
        return None
    text = f"the wheels of torch {candidate['pytorch']} on the default package index bring CUDA {release.cuda}"
    return Reason(text, facts.torch.cite(release, "cuda"))


@rule("cuda-of-base", "base", "cuda")
def cuda_matches_base(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that a base's CUDA toolkit has the major of the wheels."""
    base = facts.bases.bases[candidate["base"]]
    if base.cuda is None or versions.major(base.cuda) == versions.major(candidate["cuda"]):
        return None
    text = f"the toolkit of {candidate['base']} is of another major: what it compiles does not run on this CUDA"
    return Reason(text, facts.bases.cite(base, "cuda"))


@rule("nccl-tests-compiler", "nccl-tests", "cuda")
def cuda_compiles_nccl_tests(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require for nccl-tests a CUDA whose compiler is on the package index."""
    return _missing_compiler("nccl-tests are", candidate, facts)


@rule("devel-compiler", "variant", "cuda")
def cuda_compiles_in_devel_image(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require of a devel image a CUDA whose compiler is on the package index."""
    return _missing_compiler("extensions are", candidate, facts) if candidate["variant"] == "devel" else None


@rule("plugin-compiler", "aws-ofi-nccl", "efa-installer", "cuda", "base", "platform")
def cuda_compiles_plugin(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require of a plugin from source a CUDA whose compiler is on the package index."""
    if candidate.axes.get("aws-ofi-nccl") == "efa-installer" or efa_installer.brings_plugin(candidate, facts):
        return None
    return _missing_compiler("a plugin of another version than the installer's is", candidate, facts)


def _missing_compiler(user: str, candidate: Candidate, facts: Facts) -> Reason | None:
    majors = facts.cuda.majors
    major = str(versions.major(candidate["cuda"]))
    if major not in majors or majors[major].toolkit:
        return None
    able = " and ".join(major for major, row in majors.items() if row.toolkit)
    return Reason(f"{user} compiled with NVIDIA's wheels, a whole toolkit for CUDA {able} alone", "facts/cuda.yaml")


@rule("cuda-driver", "cuda")
def cuda_driver_is_known(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that the minimum driver of the CUDA major is known."""
    major = versions.major(candidate["cuda"])
    if str(major) in facts.cuda.majors:
        return None
    majors = " and ".join(facts.cuda.majors)
    return Reason(f"no minimum driver is known for CUDA {major}, only for CUDA {majors}", "facts/cuda.yaml")


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
