"""The GPUs that CUDA code in an image is compiled for."""

from collections.abc import Iterable

from rdma_images.core import versions
from rdma_images.core.image import Fabric
from rdma_images.facts import Facts

ALL_GPUS = "fabric"  # the value of the axis `gpu` that stands for every GPU of the fabric


def architecture_name(capability: str) -> str:
    """Return the name of the real code for a compute capability: "sm_90" for "9.0"."""
    return f"sm_{capability.replace('.', '')}"


def compute_capability(architecture: str) -> str:
    """Return the compute capability of an architecture: "9.0" for "sm_90"."""
    number = architecture.removeprefix("sm_")
    return f"{number[:-1]}.{number[-1]}"


def known_architectures(facts: Facts) -> list[str]:
    """Return all architectures of known GPUs and compilers, the oldest first."""
    capabilities = {gpu.capability for gpu in facts.gpus.gpus.values()}
    compiled = (cap for major in facts.cuda.majors.values() for cap in major.capabilities)
    return [architecture_name(cap) for cap in sorted(capabilities.union(compiled), key=versions.sort_key)]


def architectures_by_name(facts: Facts) -> dict[str, str]:
    """Return the architecture of each known GPU, by its lower-case name: "h100"."""
    return {name.lower(): architecture_name(gpu.capability) for name, gpu in facts.gpus.gpus.items()}


def compiler_capabilities(cuda: str, facts: Facts) -> tuple[str, ...]:
    """Return the compute capabilities that a CUDA version compiles for; empty if unknown."""
    major = facts.cuda.majors.get(str(versions.major(cuda)))
    return major.capabilities if major else ()


def fabric_capabilities(fabric: Fabric, facts: Facts) -> tuple[str, ...]:
    """Return the compute capabilities of the fabric's GPUs, the oldest first.

    Where the vendor does not name the GPU of a type, it may be any known one that is no older than those it names.
    """
    types = [row for row in facts.instances.types.values() if row.fabric == fabric]
    capabilities = {facts.gpus.gpus[row.gpu].capability for row in types if row.gpu}
    oldest = min(capabilities, key=versions.sort_key)
    if any(row.gpu is None for row in types):
        capabilities |= {
            gpu.capability for gpu in facts.gpus.gpus.values() if versions.at_least(gpu.capability, oldest)
        }
    return tuple(sorted(capabilities, key=versions.sort_key))


def resolve_architectures(choice: str, fabric: Fabric, cuda: str, facts: Facts) -> tuple[str, ...]:
    """Return the architectures for a value of the axis `gpu`: ("sm_80", "sm_90").

    For a fabric, the oldest of its GPUs of each generation: the newer ones of a generation run the same code.
    GPUs that this CUDA cannot compile for are left out: it does not run on them either.
    """
    if choice != ALL_GPUS:
        return (choice,)
    supported = compiler_capabilities(cuda, facts)
    return tuple(
        architecture_name(cap)
        for cap in _oldest_by_generation(cap for cap in fabric_capabilities(fabric, facts) if cap in supported)
    )


def runs_on_any(architecture: str, types: Iterable[str], facts: Facts) -> bool:
    """Return whether an architecture's code runs on a GPU of any of these instance types.

    Raises RefusedError for a type that facts/instances.yaml does not have.
    """
    code = compute_capability(architecture)
    gpus = (facts.instances.find(name).gpu for name in types)
    capabilities = [facts.gpus.gpus[gpu].capability for gpu in gpus if gpu]
    return any(versions.major(cap) == versions.major(code) and versions.at_least(cap, code) for cap in capabilities)


def gencode_options(architectures: Iterable[str]) -> str:
    """Return the compiler's options: real code for each, and PTX of the newest for later GPUs."""
    numbers = [architecture.removeprefix("sm_") for architecture in architectures]
    real = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]
    return " ".join([*real, f"-gencode=arch=compute_{numbers[-1]},code=compute_{numbers[-1]}"])


def _oldest_by_generation(capabilities: Iterable[str]) -> list[str]:
    oldest: dict[int, str] = {}
    for cap in capabilities:
        oldest.setdefault(versions.major(cap), cap)
    return list(oldest.values())
