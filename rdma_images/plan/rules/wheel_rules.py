"""Torch, NCCL, CUDA and Python: what the wheels and the base bring, and for which GPUs they compile."""

from rdma_images.components import efa_installer, gpus
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
    if candidate["gpu"] == gpus.ALL_GPUS or not able or gpus.compute_capability(candidate["gpu"]) in able:
        return None
    architectures = ", ".join(map(gpus.architecture_name, able))
    major = versions.major(candidate["cuda"])
    text = f"the compiler of CUDA {major} compiles for {architectures}, not for {candidate['gpu']}"
    return Reason(text, facts.cuda.cite(facts.cuda.majors[str(major)], "capabilities"))


@rule("gpu-of-fabric", "gpu", "fabric")
def fabric_has_gpu(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require an instance type with the fabric and such a GPU."""
    capabilities = gpus.fabric_capabilities(candidate.fabric, facts)
    if candidate["gpu"] == gpus.ALL_GPUS or gpus.compute_capability(candidate["gpu"]) in capabilities:
        return None
    architectures = ", ".join(map(gpus.architecture_name, capabilities))
    text = f"no instance type with {candidate.fabric} has such a GPU: theirs are {architectures}"
    return Reason(text, "facts/instances.yaml and facts/gpus.yaml")


@rule("python-of-base", "python", "base")
def python_is_of_base(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require the base's own Python: no other one is installed."""
    base = facts.bases.bases[candidate["base"]]
    if candidate["python"] == base.python:
        return None
    return Reason(f"{candidate['base']} has python {base.python}, and no other is installed", facts.bases.cite(base))


@rule("wheel-python", "pytorch", "python")
def torch_has_wheel_for_python(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that torch has a wheel for the Python."""
    release = facts.torch.releases[candidate["pytorch"]]
    if candidate["python"] in release.python:
        return None
    text = (
        f"torch {candidate['pytorch']} has wheels for python {release.python[0]} to {release.python[-1]}, "
        f"none for {candidate['python']}"
    )
    return Reason(text, facts.torch.cite(release, "python"))
